"""Read all rows of a project, page by page, for an export.

Nothing is held between two pages, neither a query nor a transaction: a reader may take its time, or never return.
"""

from datetime import date
from typing import NamedTuple, Protocol

import msgspec


class Chosen(msgspec.Struct, frozen=True):
    project: str  # public id
    first: date  # UTC days of occurrence, both included
    last: date
    user: str | None = None  # None: everyone


class EventDay(NamedTuple):
    day: date
    events: int


class EventExtent(msgspec.Struct, frozen=True):
    """The events that were stored when the export began."""

    ends: dict[int, int]  # of each stream, the last seq
    days: list[EventDay]  # in order

    @property
    def events(self) -> int:
        return sum(each.events for each in self.days)


class EventPage(msgspec.Struct, frozen=True):
    """Events of one day, in the order of `seq`."""

    rows: int
    last: int  # seq of the last row, after which the next page starts
    is_last: bool  # of the day
    arrow: bytes  # the rows as an Arrow stream; an absent text is null, as is the source of what was sent


class EventExport(Protocol):
    """Reads the warehouse.

    - Pages contain every row of an extent once, unless rows are deleted. Later rows are left out.
    - A page is bounded in rows and in bytes, whatever clients have sent.
    - Rows that do not count are included.
    """

    def extent(self, chosen: Chosen) -> EventExtent: ...

    def page(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
        """Return the rows of a day with a higher seq; the first is above 0."""
        ...

    def close(self) -> None: ...


class ExportedPayment(NamedTuple):
    id: str
    at: int  # epoch ms of the occurrence, clamped
    user: str | None
    amount: int  # minor units
    currency: str
    earned: bool
    source: str  # `stores.ledger.CLIENT`, a biller, or an import
    received_at: int  # epoch ms
    claimed_at: int | None  # epoch ms of the raw `at`
    payload: bytes  # the item as received, or what is kept of a biller's; `{}` after an erasure


class ExportedVersion(NamedTuple):
    id: str
    at_us: int  # epoch microseconds
    status: str
    mrr: int  # minor units
    currency: str
    customer: str | None
    plan: str | None
    received_at: int  # epoch ms
    payload: bytes
    source: str | None  # an import; None for what was sent
