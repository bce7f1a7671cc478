"""The manifest of imports, and the transactions that record or undo their money."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mauve.core.subscriptions import MrrContribution, MrrSums, day_of
from mauve.core.times import DAY_MS
from mauve.core.window import midnight_ms
from mauve.stores.imports import (
    IMPORTS_MAX,
    Figure,
    Import,
    ImportChunk,
    ImportCounts,
    ImportOutdatedError,
    ImportState,
    NewImport,
    rank_prefix,
    source_of,
)
from mauve.stores.ledger import Payment
from mauve.stores.ledger.closed_days import reopen_days
from mauve.stores.ledger.mrr import add_changes
from mauve.stores.ledger.payments import (
    PaymentKey,
    TotalKey,
    day_increases,
    insert_payments,
    lock_money,
    move_day_totals,
    raise_revisions,
    recorded_payments,
)
from mauve.stores.ledger.schema import (
    day_totals,
    imported_figures,
    imports,
    payments,
    subscription_versions,
    subscriptions,
)
from mauve.stores.ledger.subscriptions import record_versions
from mauve.stores.ledger.usage import record_first_seen
from mauve.stores.sql.database import Database, SqlStore
from mauve.stores.sql.dialects import upsert, upsert_replacing

_OUTDATED: Final = (
    "the import was undone, its app was deleted, or another command has resumed it: see 'mauve import list --app APP'"
)
_counts: Final = msgspec.json.Decoder(ImportCounts)
_LATEST_FIRST: Final = imports.c.number.desc()


class ImportLedger(SqlStore):
    """The manifest of imports, and their payments and subscription versions.

    - `commit` records a chunk and moves the import past its rows, in one transaction. It raises `ImportOutdatedError`
      and changes nothing unless the import is running and at the chunk's first row.
    - A recorded payment id is never overwritten; one of the same import counts as recorded by it.
    - Imports do not count as usage.
    """

    def begin(self, new: NewImport) -> Import:
        """Raise `ImportOutdatedError` if another command is already importing this file into the project."""
        row = msgspec.structs.asdict(new) | {"state": ImportState.RUNNING, "rows": 0, "counts": "{}"}
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, imports).values(row).on_conflict_do_nothing().returning(imports.c.number)
            number = tx.execute(insert).scalar_one_or_none()
            if number is None:
                raise ImportOutdatedError(_OUTDATED)
            if number > IMPORTS_MAX:
                raise ImportOutdatedError(f"there were {IMPORTS_MAX} imports: no more are possible")
        return Import(**msgspec.structs.asdict(new), number=number)

    def find(self, number: int) -> Import | None:
        return next(iter(self._found(imports.c.number == number, 1)), None)

    def find_file(self, project: str, digest: str) -> Import | None:
        """Return the import of this file into the project, unless it was undone."""
        is_it = (imports.c.project == project) & (imports.c.digest == digest) & (imports.c.state != ImportState.UNDONE)
        return next(iter(self._found(is_it, 1)), None)

    def latest(self, projects: Sequence[str], imports_max: int) -> list[Import]:
        return self._found(imports.c.project.in_(projects), imports_max)

    def approximate(self, projects: Sequence[str], imports_max: int) -> list[Import]:
        """Return the latest imports that reconstructed MRR and were not undone, latest first."""
        of_projects = imports.c.project.in_(projects) & imports.c.is_approximate
        return self._found(of_projects & (imports.c.state != ImportState.UNDONE), imports_max)

    def restart(self, number: int) -> Import:
        """Go back to the first row: the warehouse has lost stored rows."""
        with self._database.writing() as tx:
            return _change(tx, number, {ImportState.RUNNING}, rows=0, counts="{}")

    def commit(self, number: int, chunk: ImportChunk) -> Import:
        with self._database.writing() as tx:
            found = _locked(tx, number, {ImportState.RUNNING})
            if found.rows != chunk.first_row:
                raise ImportOutdatedError(_OUTDATED)
            lock_money(tx, [found.project] if chunk.payments or chunk.subscriptions else [])
            known = _record_payments(tx, chunk.payments, source_of(number))
            record_versions(tx, chunk.subscriptions)
            _record_figures(tx, found, chunk.figures)
            if chunk.counts.events or chunk.payments or chunk.subscriptions:
                record_first_seen(tx, {found.project: found.began_at})
            own = ImportCounts(payments=len(chunk.payments) - known, payments_known=known)
            counts = found.counts.plus(chunk.counts).plus(own)
            raise_revisions(tx, [found.project] if chunk.payments or chunk.subscriptions else [])
            return _change(tx, number, {ImportState.RUNNING}, rows=chunk.end_row, counts=_text_of(counts))

    def finish(self, number: int, ended_at: int) -> Import:
        with self._database.writing() as tx:
            return _change(tx, number, {ImportState.RUNNING}, state=ImportState.DONE, ended_at=ended_at)

    def begin_undo(self, number: int) -> Import:
        with self._database.writing() as tx:
            return _change(tx, number, set(ImportState) - {ImportState.UNDONE}, state=ImportState.UNDOING)

    def undo_money(self, number: int) -> Iterator[int]:
        """Delete payments and subscription versions in small transactions; yield the number deleted by each.

        Totals and MRR are then as if they had never been recorded. Repeating it deletes the rest.
        """
        found = self.find(number)
        if found is None:
            raise ImportOutdatedError(_OUTDATED)
        yield from _delete_payments(self._database, found.project, source_of(number))
        yield from _delete_versions(self._database, found.project, number)
        with self._database.writing() as tx:
            tx.execute(sa.delete(imported_figures).where(_is_figure_of(found)))

    def finish_undo(self, number: int, ended_at: int) -> Import:
        with self._database.writing() as tx:
            return _change(tx, number, {ImportState.UNDOING}, state=ImportState.UNDONE, ended_at=ended_at)

    def reopen_days(self, first: date) -> None:
        """Reopen this day and all later ones. Counts being computed will not be stored."""
        with self._database.writing() as tx:
            reopen_days(tx, first)

    def figures(self, projects: Sequence[str], figures_max: int) -> list[tuple[int, Figure]]:
        """Return the latest figures with the numbers of their imports, by day, latest first."""
        columns = imported_figures.c
        query = (
            sa.select(columns.number, columns.day, columns.name, columns.value)
            .where(columns.project.in_(projects))
            .order_by(columns.day.desc(), columns.name, columns.number)
            .limit(figures_max)
        )
        return [(number, Figure(day, name, value)) for number, day, name, value in self._rows(query)]

    def _found(self, condition: sa.ColumnElement[bool], imports_max: int) -> list[Import]:
        query = sa.select(imports).where(condition).order_by(_LATEST_FIRST).limit(imports_max)
        with self._database.reading() as tx:
            return [_import_from(row) for row in tx.execute(query).mappings()]


def _locked(tx: sa.Connection, number: int, states: set[ImportState]) -> Import:
    row = tx.execute(sa.select(imports).where(imports.c.number == number).with_for_update()).mappings().first()
    if row is None or row["state"] not in states:
        raise ImportOutdatedError(_OUTDATED)
    return _import_from(row)


def _change(tx: sa.Connection, number: int, states: set[ImportState], **changes: object) -> Import:
    _locked(tx, number, states)
    tx.execute(sa.update(imports).where(imports.c.number == number).values(changes))
    return _locked(tx, number, set(ImportState))


def _import_from(row: Any) -> Import:  # noqa: ANN401 - a row of the table
    counts = _counts.decode(row["counts"])
    return Import(**{**row, "counts": counts, "state": ImportState(row["state"])})


def _text_of(counts: ImportCounts) -> str:
    return msgspec.json.encode(counts).decode()


def _record_payments(tx: sa.Connection, sent: Sequence[Payment], source: str) -> int:
    """Record the new ones; return the number of ids repeated in this import or already recorded by another source."""
    first = {(payment.project, payment.id): payment for payment in reversed(sent)}
    recorded = {key: claim.source for key, claim in recorded_payments(tx, first).items() if key in first}
    new = [payment for key, payment in first.items() if key not in recorded and _has_whole(payment, first, recorded)]
    insert_payments(tx, new)
    move_day_totals(tx, day_increases(new))
    own = list(recorded.values()).count(source)
    return len(sent) - own - len(new)


def _has_whole(payment: Payment, sent: Collection[PaymentKey], recorded: Collection[PaymentKey]) -> bool:
    """Return whether a part of a payment comes together with that new payment."""
    if payment.part_of is None:
        return True
    whole = (payment.project, payment.part_of)
    return whole in sent and whole not in recorded


def _record_figures(tx: sa.Connection, found: Import, figures: Sequence[Figure]) -> None:
    rows = [each._asdict() | {"project": found.project, "number": found.number} for each in figures]
    if rows:
        tx.execute(upsert_replacing(tx.dialect.name, imported_figures), rows)


def _is_figure_of(found: Import) -> sa.ColumnElement[bool]:
    return (imported_figures.c.project == found.project) & (imported_figures.c.number == found.number)


_PAYMENTS_AT_ONCE: Final = 500
_SUBSCRIPTIONS_AT_ONCE: Final = 100
_VERSIONS_AT_ONCE: Final = 1_000

_versions: Final = subscription_versions.c
_CURRENT: Final = tuple(column.name for column in subscriptions.c)


def _delete_payments(database: Database, project: str, source: str) -> Iterator[int]:
    """Yield the number deleted by each transaction."""
    after: tuple[int, str] = (-(2**62), "")
    place = sa.tuple_(payments.c.occurred_at, payments.c.id)
    while True:
        with database.writing() as tx:
            lock_money(tx, [project])
            some = (
                sa.select(payments)
                .where(payments.c.project == project, payments.c.source == source, place > sa.tuple_(*after))
                .order_by(payments.c.occurred_at, payments.c.id)
                .limit(_PAYMENTS_AT_ONCE)
            )
            rows = tx.execute(some).mappings().all()
            if not rows:
                return
            sums: Counter[TotalKey] = Counter()
            for row in rows:
                sums[project, row["day"], row["currency"], row["earned"]] -= row["amount"]
            move_day_totals(tx, sums)
            tx.execute(
                sa.delete(payments).where(payments.c.project == project, payments.c.id == sa.bindparam("of_id")),
                [{"of_id": row["id"]} for row in rows],
            )
            _delete_empty_totals(tx, sums)
            raise_revisions(tx, [project])
            after = (rows[-1]["occurred_at"], rows[-1]["id"])
        yield len(rows)


def _delete_empty_totals(tx: sa.Connection, changed: Collection[TotalKey]) -> None:
    """Delete the totals of days without payments, but keep a zero total that stems from payments of zero."""
    for project, day, currency, earned in sorted(changed):
        begins_at = midnight_ms(date.fromisoformat(day))
        is_left = sa.exists().where(
            payments.c.project == project,
            payments.c.occurred_at.between(begins_at, begins_at + DAY_MS - 1),
            payments.c.currency == currency,
            payments.c.earned == earned,
        )
        totals = day_totals.c
        is_it = (totals.project == project) & (totals.day == day)
        is_it &= (totals.currency == currency) & (totals.earned == earned)
        tx.execute(sa.delete(day_totals).where(is_it, totals.total == 0, ~is_left))


def _delete_versions(database: Database, project: str, number: int) -> Iterator[int]:
    prefix = rank_prefix(number)
    imported = sa.and_(
        _versions.project == project,
        _versions.rank >= prefix,
        _versions.rank < prefix[:-1] + bytes([prefix[-1] + 1]),
    )
    keys = sa.select(_versions.key).where(imported).distinct().order_by(_versions.key).limit(_SUBSCRIPTIONS_AT_ONCE)
    while True:
        with database.writing() as tx:
            lock_money(tx, [project])
            found = tx.execute(keys).scalars().all()
            if not found:
                return
            sums = MrrSums()
            for key in found:
                _without_imported(tx, project, key, prefix, sums)
            add_changes(tx, sums.changes)
            deleted = tx.execute(sa.delete(subscription_versions).where(imported, _versions.key.in_(found)))
            raise_revisions(tx, [project])
        yield deleted.rowcount


def _without_imported(tx: sa.Connection, project: str, key: bytes, prefix: bytes, sums: MrrSums) -> None:
    """Add up the MRR changes from removing the imported versions, and make the latest remaining one current."""
    of_all: MrrContribution | None = None  # the latest version so far, and the latest of those to keep
    of_kept: MrrContribution | None = None
    current: int | None = None
    history = tx.execute(_HISTORY, {"of_project": project, "of_key": key})
    for sequence, at, rank, status, currency, mrr in history:
        contribution = MrrContribution(currency, mrr if status == "active" else None)
        sums.replace(project, day_of(at), contribution, of_all)
        of_all = contribution
        if not rank.startswith(prefix):
            sums.replace(project, day_of(at), of_kept, contribution)
            of_kept, current = contribution, sequence
    of_key = (subscriptions.c.project == project) & (subscriptions.c.key == key)
    if current is None:
        tx.execute(sa.delete(subscriptions).where(of_key))
        return
    latest = tx.execute(sa.select(subscription_versions).where(_versions.sequence == current)).mappings().one()
    tx.execute(sa.update(subscriptions).where(of_key).values({name: latest[name] for name in _CURRENT}))


_HISTORY: Final = (
    sa.select(*(_versions.sequence, _versions.at, _versions.rank, _versions.status, _versions.currency, _versions.mrr))
    .where(_versions.project == sa.bindparam("of_project"), _versions.key == sa.bindparam("of_key"))
    .order_by(_versions.at, _versions.rank, _versions.sequence)
    .execution_options(yield_per=_VERSIONS_AT_ONCE)
)
