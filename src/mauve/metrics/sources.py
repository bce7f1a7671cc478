"""What a metric is read from, as values: `query.sources` knows how each one is asked for."""

from dataclasses import dataclass

from mauve.core.events import Activity


@dataclass(frozen=True, slots=True)
class Users:
    """How many different users were seen in the window."""

    seen: frozenset[Activity]


@dataclass(frozen=True, slots=True)
class UsersByDay:
    seen: Activity


@dataclass(frozen=True, slots=True)
class EventNames:
    """How often each event occurred."""


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often the named event occurred."""


@dataclass(frozen=True, slots=True)
class EventDays:
    """How often the named event occurred, by day."""


@dataclass(frozen=True, slots=True)
class PaymentTotals:
    """What was paid, by day and currency: earned, or only processed for others."""

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
