"""What a metric is read from, as values: `query.read` knows how to read each."""

from dataclasses import dataclass

from mauve.core.events import Activity


@dataclass(frozen=True, slots=True)
class Users:
    """The number of distinct users in the window."""

    seen: frozenset[Activity]


@dataclass(frozen=True, slots=True)
class UsersByDay:
    seen: Activity


@dataclass(frozen=True, slots=True)
class EventNames:
    """The count of each event."""


@dataclass(frozen=True, slots=True)
class EventCount:
    """The count of the named event."""


@dataclass(frozen=True, slots=True)
class EventDays:
    """The count of the named event by day."""


@dataclass(frozen=True, slots=True)
class PaymentTotals:
    """Payments by day and currency: earned, or only processed for others."""

    earned: bool


@dataclass(frozen=True, slots=True)
class CurrentMrr:
    pass


@dataclass(frozen=True, slots=True)
class MrrHistory:
    pass


WarehouseSource = Users | UsersByDay | EventNames | EventCount | EventDays
LedgerSource = PaymentTotals | CurrentMrr | MrrHistory
Source = WarehouseSource | LedgerSource
