"""List current subscriptions, in one of several orders, with their total MRR."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mauve.stores.ledger.mrr import totals_of
from mauve.stores.ledger.schema import subscriptions
from mauve.stores.ledger.subscriptions import key_of
from mauve.stores.sql.database import SqlStore
from mauve.stores.sql.dialects import AnyText

ID_CHARACTERS_SHOWN: Final = 256
CUSTOMER_SUBSCRIPTIONS_MAX: Final = 500  # found by the customer, the latest ones


@dataclass(frozen=True, slots=True)
class CurrentSubscription:
    key: bytes  # unique: breaks ties in every order
    id: str  # truncated if it is very long
    at: int  # epoch microseconds of the current version
    status: str
    mrr: int
    currency: str
    customer: str | None = None  # the biller's name for the person; None: unknown or erased
    plan: str | None = None

    @property
    def is_counted(self) -> bool:
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class SubscriptionCount:
    status: str
    currency: str
    count: int


class SubscriptionOrder(StrEnum):
    """The orders of the list. Amounts of different currencies are not compared: each currency has its own block."""

    UPDATED = "updated"  # the latest version first
    MRR = "mrr"  # the highest first
    STATUS = "status"  # by name


SubscriptionPosition = tuple[str | int | bytes, ...]
"""The sort values and the key of the last row of a page; the next page continues after it."""


@dataclass(frozen=True, slots=True)
class SubscriptionQuery:
    """Which subscriptions to list, and how. None: any."""

    order: SubscriptionOrder = SubscriptionOrder.UPDATED
    after: SubscriptionPosition | None = None  # in this order; None: from the first
    status: str | None = None
    named: str | None = None  # exactly the id or the customer


def position_of(each: CurrentSubscription, order: SubscriptionOrder) -> SubscriptionPosition:
    match order:
        case SubscriptionOrder.UPDATED:
            return each.at, each.key
        case SubscriptionOrder.MRR:
            return each.currency, each.mrr, each.key
        case SubscriptionOrder.STATUS:
            return each.status, each.at, each.key


class SubscriptionSummary(NamedTuple):
    """A consistent view of MRR, its counts and a part of the list."""

    mrr: Sequence[tuple[str, int]]  # currency and sum, for each currency with an active subscription
    counts: Sequence[SubscriptionCount]  # most frequent first
    subscriptions: Sequence[CurrentSubscription]


_columns: Final = subscriptions.c
# An id is limited only by the body size. Truncate it in the database, with room for a fully escaped one.
_ID: Final = sa.type_coerce(sa.func.substr(_columns.id, 1, 2 * (ID_CHARACTERS_SHOWN + 1)), AnyText)
_SHOWN: Final = (
    *(_columns.key, _ID, _columns.at, _columns.status, _columns.mrr, _columns.currency),
    *(_columns.customer, _columns.plan),
)
_COUNT: Final = sa.func.count()

# All columns of an order have the same direction, so that one row comparison finds the start of a page.
_ORDERS: Final[Mapping[SubscriptionOrder, tuple[sa.Column[Any], ...]]] = {
    SubscriptionOrder.UPDATED: (_columns.at, _columns.key),
    SubscriptionOrder.MRR: (_columns.currency, _columns.mrr, _columns.key),
    SubscriptionOrder.STATUS: (_columns.status, _columns.at, _columns.key),
}
_DESCENDING: Final = frozenset({SubscriptionOrder.UPDATED, SubscriptionOrder.MRR})


class SubscriptionReader(SqlStore):
    """Pages contain every subscription once, unless its position changes."""

    def page(self, project: str, query: SubscriptionQuery, limit: int) -> list[CurrentSubscription]:
        with self._database.reading() as tx:
            return _page(tx, project, query, limit)

    def with_ids(self, project: str, ids: Sequence[str]) -> list[CurrentSubscription]:
        """Return the existing subscriptions with these ids, in any order."""
        keys = [key_of(id_) for id_ in ids]
        with self._database.reading() as tx:
            return _listed(tx, sa.select(*_SHOWN).where(_columns.project == project, _columns.key.in_(keys)))

    def summary(self, project: str, query: SubscriptionQuery, limit: int, counts_max: int) -> SubscriptionSummary:
        """Return a page together with MRR and counts, which do not depend on the query."""
        with self._database.reading() as tx:
            totals = totals_of(tx, [project]).get(project, {})
            return SubscriptionSummary(
                mrr=sorted((currency, total.mrr) for currency, total in totals.items() if total.active),
                counts=_counts(tx, project, counts_max),
                subscriptions=_page(tx, project, query, limit),
            )


def _page(tx: sa.Connection, project: str, query: SubscriptionQuery, limit: int) -> list[CurrentSubscription]:
    columns: Sequence[sa.ColumnElement[Any]] = _ORDERS[query.order]
    is_descending = query.order in _DESCENDING
    select = sa.select(*_SHOWN).where(_columns.project == project)
    if query.status is not None:
        select = select.where(_columns.status == query.status)
    if query.named is not None:
        select = select.where(_columns.key.in_([key_of(query.named), *_keys_of_customer(tx, project, query.named)]))
        # These are few. Hide the order from SQLite, which would otherwise scan its index instead of looking rows up.
        columns = [sa.func.coalesce(column, column) for column in columns]
    if query.after is not None:
        values = zip(query.after, columns, strict=True)
        place, last = sa.tuple_(*columns), sa.tuple_(*(sa.literal(value, column.type) for value, column in values))
        select = select.where(place < last if is_descending else place > last)
    select = select.order_by(*(column.desc() if is_descending else column for column in columns)).limit(limit)
    return _listed(tx, select)


def _listed(tx: sa.Connection, select: sa.Select[Any]) -> list[CurrentSubscription]:
    return [CurrentSubscription(key, _shown(id_), *rest) for key, id_, *rest in tx.execute(select)]


def _keys_of_customer(tx: sa.Connection, project: str, customer: str) -> list[bytes]:
    """Return the keys of the customer's latest subscriptions: for an OR, SQLite would read all rows."""
    of_customer = sa.select(_columns.key).where(_columns.project == project, _columns.customer == customer)
    latest = of_customer.order_by(_columns.at.desc(), _columns.key.desc()).limit(CUSTOMER_SUBSCRIPTIONS_MAX)
    return [key for (key,) in tx.execute(latest)]


def _counts(tx: sa.Connection, project: str, limit: int) -> list[SubscriptionCount]:
    query = (
        sa.select(_columns.status, _columns.currency, _COUNT)
        .where(_columns.project == project)
        .group_by(_columns.status, _columns.currency)
        .order_by(_COUNT.desc(), _columns.status, _columns.currency)
    )
    return [SubscriptionCount(*row) for row in tx.execute(query.limit(limit))]


def _shown(id_: str) -> str:
    return id_ if len(id_) <= ID_CHARACTERS_SHOWN else f"{id_[:ID_CHARACTERS_SHOWN]}…"
