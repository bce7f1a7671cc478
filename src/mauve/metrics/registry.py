"""The metrics in one table, in the order of the contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mauve.core.events import Activity
from mauve.core.problems import Code, Problem

ANY_ACTIVITY: Final = frozenset(Activity)
NAMES_MAX: Final = 10_000  # of event_names, the most frequent: clients choose names and thus their number


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


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    columns: tuple[str, ...]  # of a row, in the order its source returns them
    source: Source
    is_windowless: bool = False
    needs_name: bool = False
    rows_max: int | None = None  # more rows are cut, and the answer says so; None: refuse an answer with too many rows

    @property
    def is_raw_scan(self) -> bool:
        """Return whether a read counts against the allowance of raw scans."""
        return isinstance(self.source, EventNames | EventCount | EventDays)


_TABLE: Final = (
    Metric("mau", ("mau",), Users(ANY_ACTIVITY)),
    Metric("dau", ("day", "dau"), UsersByDay(Activity.ACTIVE)),
    Metric("signups", ("signups",), Users(frozenset({Activity.SIGNUP}))),
    Metric("signups_daily", ("day", "signups"), UsersByDay(Activity.SIGNUP)),
    Metric("revenue", ("day", "currency", "revenue"), PaymentTotals(earned=True)),
    Metric("mrr", ("currency", "mrr"), CurrentMrr(), is_windowless=True),
    Metric("mrr_history", ("day", "currency", "mrr"), MrrHistory()),
    Metric("volume", ("day", "currency", "volume"), PaymentTotals(earned=False)),
    Metric("event_names", ("name", "count"), EventNames(), rows_max=NAMES_MAX),
    Metric("event_count", ("name", "count"), EventCount(), needs_name=True),
    Metric("event_series", ("day", "count"), EventDays(), needs_name=True),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in _TABLE})


def metric_named(name: str) -> Metric:
    metric = METRICS.get(name)
    if metric is None:
        raise Problem(Code.NOT_FOUND, f"unknown metric: ask for one of {', '.join(METRICS)}")
    return metric
