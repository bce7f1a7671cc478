"""List payments, latest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mauve.core.times import DAY_MS
from mauve.core.window import Window, midnight_ms
from mauve.stores.ledger import CLIENT
from mauve.stores.ledger.schema import payments
from mauve.stores.sql.database import SqlStore


@dataclass(frozen=True, slots=True)
class ListedPayment:
    id: str
    occurred_at: int  # epoch ms
    amount: int  # minor units
    currency: str
    earned: bool
    user: str | None
    source: str  # `stores.ledger.CLIENT`, or a biller
    flags: tuple[str, ...] = ()  # warnings about the biller's delivery; none after an erasure


@dataclass(frozen=True, slots=True)
class PaymentFilter:
    """Which payments to list. None: any."""

    window: Window  # of UTC days of occurrence, as in `revenue` and `volume`
    currency: str | None = None
    source: str | None = None
    user: str | None = None
    id: str | None = None


class PaymentPosition(NamedTuple):
    """A payment's position in the list; the next page continues after it."""

    occurred_at: int
    id: str


_columns: Final = payments.c
_SHOWN: Final = (
    *(_columns.id, _columns.occurred_at, _columns.amount, _columns.currency, _columns.earned),
    *(_columns.user, _columns.source),
    # Only billers' payloads hold flags, and they are short; a client's may be long.
    sa.case((_columns.source != CLIENT, _columns.payload)),
)
_PLACE: Final = sa.tuple_(_columns.occurred_at, _columns.id)


class _Delivered(msgspec.Struct):
    """The part of a biller's payload that the list shows."""

    flags: list[str] = []


_DELIVERED: Final = msgspec.json.Decoder(_Delivered)


class PaymentReader(SqlStore):
    """The list is ordered by time of occurrence, latest first, then by id. Pages contain every payment once."""

    def page(
        self, project: str, chosen: PaymentFilter, after: PaymentPosition | None, limit: int
    ) -> list[ListedPayment]:
        """Return the payments after a position; None starts with the latest."""
        query = sa.select(*_SHOWN).where(_columns.project == project, *_chosen(chosen), _starts(chosen.window, after))
        query = query.order_by(_columns.occurred_at.desc(), _columns.id.desc()).limit(limit)
        return self._listed(query)

    def with_ids(self, project: str, ids: Sequence[str]) -> list[ListedPayment]:
        """Return the existing payments with these ids, in any order."""
        return self._listed(sa.select(*_SHOWN).where(_columns.project == project, _columns.id.in_(ids)))

    def _listed(self, query: sa.Select[Any]) -> list[ListedPayment]:
        return [ListedPayment(*(*shown, _flags_in(payload))) for *shown, payload in self._rows(query)]


def _chosen(chosen: PaymentFilter) -> Iterator[sa.ColumnElement[bool]]:
    yield _columns.occurred_at >= midnight_ms(chosen.window.first)
    for column in (_columns.currency, _columns.source, _columns.user, _columns.id):
        value = getattr(chosen, column.name)
        if value is not None:
            yield column == value


def _starts(window: Window, after: PaymentPosition | None) -> sa.ColumnElement[bool]:
    """Return the start of the page as a single condition: SQLite uses the index for only one."""
    end_ms = midnight_ms(window.last) + DAY_MS
    if after is None or after.occurred_at >= end_ms:
        return _columns.occurred_at < end_ms
    return sa.tuple_(sa.literal(after.occurred_at), sa.literal(after.id, _columns.id.type)) > _PLACE


def _flags_in(payload: bytes | None) -> tuple[str, ...]:
    if payload is None:
        return ()
    try:
        return tuple(_DELIVERED.decode(payload).flags)
    except msgspec.DecodeError:
        return ()  # A payload of another release: nothing is known about it.
