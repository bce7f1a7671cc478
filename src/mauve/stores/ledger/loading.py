"""The loader's side of the ledger, and unloaded events that were sent in one batch with payments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Final

import sqlalchemy as sa

from mauve.stores.ledger import LOG_LOST, Intent, LeaseLostError, LoadStep, StepOutdatedError, Turn, intent_from
from mauve.stores.ledger.ingest_stats import add_ingest_stats
from mauve.stores.ledger.load_lease import update_during
from mauve.stores.ledger.schema import (
    dead_letters,
    event_outbox,
    event_outbox_head,
    first_seen,
    load_lease,
    load_positions,
    usage,
)
from mauve.stores.ledger.usage import add_usage, record_first_seen
from mauve.stores.log import LogRecord
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert

_MEASURED_RECORDS_MAX: Final = 10_000


class SqlLoadLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    def positions(self) -> dict[int, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(load_positions.c.stream, load_positions.c.number))
            return dict(rows.all())

    def intend(self, intent: Intent, turn: Turn | None) -> None:
        with self._database.writing() as tx:
            _set_intent(tx, intent.name, turn)
            # The last step may have been committed even though its answer was lost.
            found = dict(tx.execute(sa.select(load_positions.c.stream, load_positions.c.number)).all())
            for stream, before in intent.before.items():
                if found.get(stream, 0) != before:
                    raise _outdated(stream, before)

    def intent(self) -> Intent | None:
        with self._database.reading() as tx:
            name = tx.execute(sa.select(load_lease.c.intent)).scalar_one()
        return None if name is None else intent_from(name)

    def finish(self, step: LoadStep) -> None:
        with self._database.writing() as tx:
            _set_intent(tx, None, step.turn)
            _move_positions(tx, step)
            add_usage(tx, step.events_by_org_and_period)
            record_first_seen(tx, step.first_seen_by_project)
            if step.ingest_stats is not None:
                add_ingest_stats(tx, [step.ingest_stats])
            if step.dead_letters:
                tx.execute(sa.insert(dead_letters), [asdict(letter) for letter in step.dead_letters])

    def read_events(self, after: int, bytes_max: int) -> list[LogRecord]:
        with self._database.reading() as tx:
            return _read_events(tx, after, bytes_max)

    def last_event_number(self) -> int:
        with self._database.reading() as tx:
            return int(tx.execute(sa.select(event_outbox_head.c.number)).scalar_one())

    def trim_events(self, through: int) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.delete(event_outbox).where(event_outbox.c.number <= through))

    def waiting_bytes(self, after: int) -> int:
        waiting = sa.select(event_outbox.c.record).where(event_outbox.c.number > after).limit(_MEASURED_RECORDS_MAX)
        size = sa.func.coalesce(sa.func.sum(sa.func.length(waiting.subquery().c.record)), 0)
        with self._database.reading() as tx:
            return int(tx.execute(sa.select(size)).scalar_one())

    def usage(self, period: str) -> dict[str, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(usage.c.org_id, usage.c.events).where(usage.c.period == period))
            return dict(rows.all())

    def first_seen(self) -> dict[str, int]:
        with self._database.reading() as tx:
            rows = tx.execute(sa.select(first_seen.c.project, first_seen.c.at).where(first_seen.c.noted.is_(False)))
            return dict(rows.all())

    def acknowledge_first_seen(self, seen: Mapping[str, int]) -> None:
        if not seen:
            return
        is_this = (first_seen.c.project == sa.bindparam("of_project")) & (first_seen.c.at == sa.bindparam("of_at"))
        with self._database.writing() as tx:
            rows = [{"of_project": project, "of_at": at} for project, at in sorted(seen.items())]
            tx.execute(sa.update(first_seen).where(is_this).values(noted=True), rows)

    def dead_letter_count(self) -> int:
        with self._database.reading() as tx:
            return tx.execute(sa.select(sa.func.count()).select_from(dead_letters)).scalar_one()

    def log_losses(self) -> list[tuple[int, int]]:
        letters = dead_letters.c
        found = sa.select(letters.stream, letters.at).where(letters.reason == LOG_LOST).order_by(letters.sequence)
        with self._database.reading() as tx:
            return [(stream, at) for stream, at in tx.execute(found)]


def _set_intent(tx: sa.Connection, name: str | None, turn: Turn | None) -> None:
    """Change the intent if this turn is current. The row stays locked, so no other turn begins in the transaction."""
    update = sa.update(load_lease) if turn is None else update_during(turn)
    if tx.execute(update.values(intent=name)).rowcount != 1:
        raise LeaseLostError("another loader has taken over this step")


def _move_positions(tx: sa.Connection, step: LoadStep) -> None:
    """Move each position from the start to the end of the step; row counts show whether it was at the start."""
    for stream, number in sorted(step.positions.items()):  # In sorted order, so that two loaders cannot deadlock.
        before = step.positions_before.get(stream, 0)
        if before:
            moved = tx.execute(_MOVE, {"of_stream": stream, "before": before, "number": number})
        else:
            moved = tx.execute(_first_position(tx.dialect.name), {"stream": stream, "number": number})
        if moved.rowcount != 1:
            raise _outdated(stream, before)


def _outdated(stream: int, before: int) -> StepOutdatedError:
    return StepOutdatedError(f"stream {stream} is no longer at {before}: the step was not applied")


_MOVE: Final = (
    sa.update(load_positions)
    .where(load_positions.c.stream == sa.bindparam("of_stream"), load_positions.c.number == sa.bindparam("before"))
    .values(number=sa.bindparam("number"))
)


@cache
def _first_position(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, load_positions).on_conflict_do_nothing(index_elements=[load_positions.c.stream])
    return insert.execution_options(preserve_rowcount=True)  # an insert has none by default


_ROWS_AT_ONCE: Final = 16


def append_events(tx: sa.Connection, records: Sequence[bytes]) -> None:
    """Store records under the next numbers, within the caller's transaction.

    The head is locked until the transaction ends, so numbers become visible in order: a reader that has seen one never
    misses a lower one. A PostgreSQL sequence would not guarantee that.
    """
    if not records:
        return
    last = tx.execute(sa.select(event_outbox_head.c.number).with_for_update()).scalar_one()
    rows = [{"number": number, "record": record} for number, record in enumerate(records, start=last + 1)]
    tx.execute(sa.insert(event_outbox), rows)
    tx.execute(sa.update(event_outbox_head).values(number=last + len(records)))


def _read_events(tx: sa.Connection, after: int, bytes_max: int) -> list[LogRecord]:
    """Return records up to `bytes_max`, but at least one if there is any."""
    query = sa.select(event_outbox).where(event_outbox.c.number > after).order_by(event_outbox.c.number)
    records: list[LogRecord] = []
    size = 0
    with tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows:
        for number, record in rows:
            size += len(record)
            if records and size > bytes_max:
                break
            records.append(LogRecord(number, record))
    return records
