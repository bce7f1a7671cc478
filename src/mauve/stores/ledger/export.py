"""Read a project's payments and subscription versions for an export, in short transactions."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.personal_data import names_person
from mauve.core.times import DAY_MS
from mauve.core.window import midnight_ms
from mauve.stores.export import Chosen, ExportedPayment, ExportedVersion
from mauve.stores.imports import source_in_rank
from mauve.stores.ledger.schema import payments, subscription_versions
from mauve.stores.sql.database import SqlStore

ROWS_AT_ONCE: Final = 250  # A payload may take 120 KB.
_US: Final = 1000  # in a millisecond

_paid: Final = payments.c
_PAYMENT: Final = (
    *(_paid.id, _paid.occurred_at, _paid.user, _paid.amount, _paid.currency, _paid.earned),
    *(_paid.source, _paid.received_at, _paid.claimed_at, _paid.payload),
)
_PAYMENT_PLACE: Final = (_paid.occurred_at, _paid.id)

_version: Final = subscription_versions.c
_VERSION: Final = (
    *(_version.id, _version.at, _version.status, _version.mrr, _version.currency, _version.customer, _version.plan),
    *(_version.received_at, _version.payload),
)
_VERSION_PLACE: Final = (_version.key, _version.at, _version.rank, _version.sequence)


class LedgerExport(SqlStore):
    """Reads everything recorded before the first page, once, and possibly some later rows.

    Payments are in order of occurrence, versions by subscription and then in order of validity. A person's versions are
    those that name them as the customer, or in a payload field for the customer.
    """

    def payments(self, chosen: Chosen) -> Iterator[Sequence[ExportedPayment]]:
        first_ms, end_ms = _bounds_ms(chosen)
        at: sa.ColumnElement[int] = _paid.occurred_at
        of_project = _paid.project == chosen.project
        if chosen.user is not None:
            of_project &= _paid.user == chosen.user
            # Hide the end from SQLite, which would otherwise search by day instead of by person.
            at = sa.func.coalesce(at, at)
        with self._database.reading() as tx:
            last_at = tx.execute(sa.select(sa.func.max(_paid.occurred_at)).where(of_project)).scalar_one()
        if last_at is None:
            return
        query = sa.select(*_PAYMENT, *_PAYMENT_PLACE).where(of_project, at <= min(last_at, end_ms - 1))
        for rows in self._pages(query, _PAYMENT_PLACE, (first_ms, "")):
            yield [ExportedPayment(*row[: len(_PAYMENT)]) for row in rows]

    def versions(self, chosen: Chosen) -> Iterator[Sequence[ExportedVersion]]:
        first_ms, end_ms = _bounds_ms(chosen)
        in_days = (_version.at >= first_ms * _US) & (_version.at < end_ms * _US)
        with self._database.reading() as tx:
            last = tx.execute(sa.select(sa.func.max(_version.sequence))).scalar_one()
        if last is None:
            return
        query = sa.select(*_VERSION, *_VERSION_PLACE).where(
            _version.project == chosen.project, in_days, _version.sequence <= last
        )
        for rows in self._pages(query, _VERSION_PLACE, (b"", 0, b"", 0)):
            found = [ExportedVersion._make((*row[: len(_VERSION)], source_in_rank(row.rank))) for row in rows]
            if chosen.user is not None:
                found = [each for each in found if _is_of(each, chosen.user)]
            if found:
                yield found

    def _pages(
        self, query: sa.Select[Any], place: Sequence[sa.Column[Any]], starts: Sequence[object]
    ) -> Iterator[Sequence[sa.Row[Any]]]:
        """Yield the rows after a position, in order. A row's last columns are its position."""
        after = starts
        while True:
            values = [sa.literal(value, column.type) for value, column in zip(after, place, strict=True)]
            page = query.where(sa.tuple_(*place) > sa.tuple_(*values)).order_by(*place).limit(ROWS_AT_ONCE)
            with self._database.reading() as tx:
                rows = tx.execute(page).all()
            if rows:
                yield rows
            if len(rows) < ROWS_AT_ONCE:
                return
            after = rows[-1][-len(place) :]


def _bounds_ms(chosen: Chosen) -> tuple[int, int]:
    return midnight_ms(chosen.first), midnight_ms(chosen.last) + DAY_MS


def _is_of(version: ExportedVersion, user: str) -> bool:
    return version.customer == user or names_person(version.payload, user)
