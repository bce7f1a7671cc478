"""The loader's side of the ledger."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Final

import sqlalchemy as sa

from mauve.stores.ledger import LoadStep, StepOutdatedError
from mauve.stores.log import LogRecord
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger import mixed_batches as event_outbox
from mauve.stores.sql.ledger.counts import add_usage, keep_first_seen
from mauve.stores.sql.ledger.ingest_stats import add_arrivals
from mauve.stores.sql.ledger.schema import dead_letters, first_seen, load_positions, usage
from mauve.stores.sql.upsert import upsert


class SqlLoadLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    def positions(self) -> dict[int, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(load_positions.c.stream, load_positions.c.number))
            return dict(rows.all())

    def finish(self, step: LoadStep) -> None:
        with self._database.writing() as tx:
            _move_positions(tx, step)
            add_usage(tx, step.events_by_org_and_period)
            keep_first_seen(tx, step.first_seen_by_project)
            if step.arrivals is not None:
                add_arrivals(tx, [step.arrivals])
            if step.dead_letters:
                tx.execute(sa.insert(dead_letters), [asdict(letter) for letter in step.dead_letters])

    def read_events(self, after: int, bytes_max: int) -> list[LogRecord]:
        with self._database.reading() as tx:
            return event_outbox.read_events(tx, after, bytes_max)

    def trim_events(self, through: int) -> None:
        with self._database.writing() as tx:
            event_outbox.trim_events(tx, through)

    def usage(self, period: str) -> dict[str, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(usage.c.org_id, usage.c.events).where(usage.c.period == period))
            return dict(rows.all())

    def first_seen(self) -> dict[str, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(first_seen.c.project, first_seen.c.at).where(first_seen.c.noted.is_(False)))
            return dict(rows.all())

    def forget_first_seen(self, seen: Mapping[str, int]) -> None:
        if not seen:
            return
        is_this = (first_seen.c.project == sa.bindparam("of_project")) & (first_seen.c.at == sa.bindparam("of_at"))
        with self._database.writing() as tx:
            rows = [{"of_project": project, "of_at": at} for project, at in sorted(seen.items())]
            tx.execute(sa.update(first_seen).where(is_this).values(noted=True), rows)

    def dead_letter_count(self) -> int:
        with self._database.reading() as tx:
            return tx.execute(sa.select(sa.func.count()).select_from(dead_letters)).scalar_one()


def _move_positions(tx: sa.Connection, step: LoadStep) -> None:
    """Move each position from where the step began to where it ended; both statements tell whether it stood there."""
    for stream, number in sorted(step.positions.items()):  # In one order: two loaders never wait for each other.
        before = step.positions_before.get(stream, 0)
        if before:
            moved = tx.execute(_MOVE, {"of_stream": stream, "before": before, "number": number})
        else:
            moved = tx.execute(_first_position(tx.dialect.name), {"stream": stream, "number": number})
        if moved.rowcount != 1:
            raise StepOutdatedError(f"stream {stream} is not at {before} any more: the step is not counted again")


_MOVE: Final = (
    sa.update(load_positions)
    .where(load_positions.c.stream == sa.bindparam("of_stream"), load_positions.c.number == sa.bindparam("before"))
    .values(number=sa.bindparam("number"))
)


@cache
def _first_position(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, load_positions).on_conflict_do_nothing(index_elements=[load_positions.c.stream])
    return insert.execution_options(preserve_rowcount=True)  # an insert has none otherwise
