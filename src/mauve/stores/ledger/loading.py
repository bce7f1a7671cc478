"""The loader's side of the ledger, and unloaded events that were sent in one batch with payments."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Final, NamedTuple

import sqlalchemy as sa

from mauve.stores.ledger import (
    LOG_LOST,
    DeadLetter,
    Intent,
    LeaseLostError,
    LoadStep,
    StepOutdatedError,
    Turn,
    intent_from,
)
from mauve.stores.ledger.schema import (
    dead_letters,
    event_outbox,
    event_outbox_head,
    first_seen,
    imports,
    load_lease,
    load_positions,
    usage,
)
from mauve.stores.ledger.usage import add_ingest_stats, add_usage, record_first_seen
from mauve.stores.log import LogRecord
from mauve.stores.sql.database import Database, SqlStore
from mauve.stores.sql.dialects import now_ms, upsert

_POSITIONS: Final = sa.select(load_positions.c.stream, load_positions.c.number)


class Lease(NamedTuple):
    holder: str
    left_s: float  # until it expires, unless it is renewed


class LeaseStore(SqlStore):
    """The loader lease: held by one loader at a time, until it expires by the ledger's own clock.

    - Every turn has a higher epoch than all previous ones. `intend` and `finish` refuse any turn but the current one.
    - An expired lease belongs to its holder until another loader acquires it.
    """

    def acquire(self, holder: str, ttl_s: float) -> Turn | None:
        """Begin a turn and return it, or None if another holder has the lease.

        A restarted holder reacquires its own lease immediately.
        """
        with self._database.writing() as tx:
            taken = tx.execute(_acquisition(tx.dialect.name), {"by": holder, "ttl_ms": int(ttl_s * 1000)})
            return Turn(holder, tx.execute(sa.select(load_lease.c.epoch)).scalar_one()) if taken.rowcount else None

    def renew(self, turn: Turn, ttl_s: float) -> bool:
        """Extend the turn by `ttl_s`; return False if it is over."""
        with self._database.writing() as tx:
            expires_at = now_ms(tx.dialect.name) + int(ttl_s * 1000)
            return tx.execute(update_during(turn).values(expires_at=expires_at)).rowcount == 1

    def release(self, turn: Turn) -> None:
        """End the turn, so that another loader can start immediately; do nothing if another turn has begun."""
        self._execute(update_during(turn).values(holder=None))

    def current(self) -> Lease | None:
        """Return the current lease, for operators; None if it is free or has expired."""
        with self._database.reading() as tx:
            left_ms = load_lease.c.expires_at - now_ms(tx.dialect.name)
            holder, left = tx.execute(sa.select(load_lease.c.holder, left_ms)).one()
        return Lease(holder, left / 1000) if holder is not None and left > 0 else None

    def renewed_s_ago(self, ttl_s: float) -> float:
        """Return how long ago the last turn began or was renewed, even if it has ended, for operators."""
        with self._database.reading() as tx:
            left_ms: int = tx.execute(sa.select(load_lease.c.expires_at - now_ms(tx.dialect.name))).scalar_one()
        return ttl_s - left_ms / 1000


def _ttl_ms() -> sa.BindParameter[int]:
    return sa.bindparam("ttl_ms", type_=sa.BigInteger)


@cache
def _acquisition(dialect_name: str) -> sa.Update:
    now = now_ms(dialect_name)
    # If a lease ends later than one granted now, the database's clock was set back.
    has_expired = ~load_lease.c.expires_at.between(now + 1, now + _ttl_ms())
    holder = sa.bindparam("by", type_=sa.Text)
    is_free = sa.or_(load_lease.c.holder.is_(None), load_lease.c.holder == holder, has_expired)
    turn = {"holder": holder, "epoch": load_lease.c.epoch + 1, "expires_at": now + _ttl_ms()}
    return sa.update(load_lease).where(is_free).values(turn)


def update_during(turn: Turn) -> sa.Update:
    """Return an update of the lease that changes no row unless this is the current turn."""
    return sa.update(load_lease).where(load_lease.c.epoch == turn.epoch, load_lease.c.holder == turn.holder)


_MEASURED_RECORDS_MAX: Final = 10_000


class LoadLedger(SqlStore):
    """The loader's state, and the events that were sent with payments."""

    def positions(self) -> dict[int, int]:
        return dict(self._rows(_POSITIONS))

    def intend(self, intent: Intent, turn: Turn | None) -> None:
        """Record the range that is about to be committed to the warehouse, replacing any other.

        Raise `LeaseLostError` and change nothing if another turn has begun. Raise `StepOutdatedError` and change
        nothing unless the positions are those before the range.
        """
        with self._database.writing() as tx:
            _set_intent(tx, intent.name, turn)
            # The last step may have been committed even though its answer was lost.
            found = dict(tx.execute(_POSITIONS).all())
            for stream, before in intent.before.items():
                if found.get(stream, 0) != before:
                    raise _outdated(stream, before)

    def intent(self) -> Intent | None:
        """Return the unfinished range, which may be partly or fully stored in the warehouse."""
        name = self._scalar(sa.select(load_lease.c.intent))
        return None if name is None else intent_from(name)

    def finish(self, step: LoadStep) -> None:
        """Commit the step in one transaction: advance positions, add counts, keep the earliest first events.

        Clear the intent. Raise `LeaseLostError` and change nothing if another turn has begun. Raise `StepOutdatedError`
        and change nothing unless the positions are still those before the step, so that a step finished twice is
        committed once.
        """
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
        """Return the event records of mixed batches numbered above `after`, in order."""
        with self._database.reading() as tx:
            return _read_events(tx, after, bytes_max)

    def last_event_number(self) -> int:
        """Return the number of the last such record, even if it was trimmed."""
        return int(self._scalar(sa.select(event_outbox_head.c.number)))

    def trim_events(self, through: int) -> None:
        self._execute(sa.delete(event_outbox).where(event_outbox.c.number <= through))

    def waiting_bytes(self, after: int) -> int:
        """Return the size of the event records numbered above `after`, up to a maximum number of records."""
        waiting = sa.select(event_outbox.c.record).where(event_outbox.c.number > after).limit(_MEASURED_RECORDS_MAX)
        size = sa.func.coalesce(sa.func.sum(sa.func.length(waiting.subquery().c.record)), 0)
        return int(self._scalar(sa.select(size)))

    def usage(self, period: str) -> dict[str, int]:
        """Return the events counted for each organization in a billing period, such as `2026-11`."""
        return dict(self._rows(sa.select(usage.c.org_id, usage.c.events).where(usage.c.period == period)))

    def first_seen(self) -> dict[str, int]:
        """Return the projects whose first event is not in the catalog yet, with its time."""
        return dict(self._rows(sa.select(first_seen.c.project, first_seen.c.at).where(first_seen.c.noted.is_(False))))

    def acknowledge_first_seen(self, seen: Mapping[str, int]) -> None:
        """Record that the catalog has these times; only an earlier one is reported again."""
        is_this = (first_seen.c.project == sa.bindparam("of_project")) & (first_seen.c.at == sa.bindparam("of_at"))
        rows = [{"of_project": project, "of_at": at} for project, at in sorted(seen.items())]
        self._execute_each(sa.update(first_seen).where(is_this).values(noted=True), rows)

    def dead_letter_count(self) -> int:
        return int(self._scalar(sa.select(sa.func.count()).select_from(dead_letters)))

    def log_losses(self) -> list[tuple[int, int]]:
        """Return the streams in the dead letters whose files were lost, and when that was detected."""
        letters = dead_letters.c
        found = sa.select(letters.stream, letters.at).where(letters.reason == LOG_LOST).order_by(letters.sequence)
        return [(stream, at) for stream, at in self._rows(found)]


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


# Reconcile the ledger with a newer warehouse or a lost log.


def raise_outbox_head(database: Database, number: int) -> None:
    """Continue numbering the ledger's stream after this record: the warehouse has rows up to it."""
    with database.writing() as tx:
        tx.execute(sa.update(event_outbox_head).where(event_outbox_head.c.number < number).values(number=number))


def unknown_imports(database: Database, stored: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the imports, by project and number, that are missing from the ledger."""
    with database.reading() as tx:
        known = {(project, number) for project, number in tx.execute(sa.select(imports.c.project, imports.c.number))}
    return sorted(set(stored) - known)


def raise_import_number(database: Database, number: int) -> None:
    """Continue numbering imports after this one: the warehouse has rows up to it. PostgreSQL only."""
    sequence = sa.func.pg_get_serial_sequence(imports.name, imports.c.number.name)
    with database.writing() as tx:
        tx.execute(sa.select(sa.func.setval(sequence, sa.func.greatest(sa.func.nextval(sequence), number))))


def skip_lost_records(database: Database, last_numbers: Mapping[int, int]) -> None:
    """Mark every record of these lost streams as loaded, up to the given number.

    A stream may be missing from an older ledger. An unfinished range keeps its other streams.
    """
    with database.writing() as tx:
        name = tx.execute(sa.select(load_lease.c.intent).with_for_update()).scalar_one()
        if name is not None:
            intent = intent_from(name).without(last_numbers)
            tx.execute(sa.update(load_lease).values(intent=intent.name or None))
        for stream, number in sorted(last_numbers.items()):
            first = upsert(tx.dialect.name, load_positions).values(stream=stream, number=number)
            tx.execute(first.on_conflict_do_nothing(index_elements=[load_positions.c.stream]))
            is_before = (load_positions.c.stream == stream) & (load_positions.c.number < number)
            tx.execute(sa.update(load_positions).where(is_before).values(number=number))


def keep_dead_letters(database: Database, letters: Sequence[DeadLetter]) -> None:
    """Record losses outside of a load step, until an operator deletes them."""
    with database.writing() as tx:
        tx.execute(sa.insert(dead_letters), [asdict(letter) for letter in letters])
