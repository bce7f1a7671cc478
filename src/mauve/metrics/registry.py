"""The metrics, as one table: what the contract lists, in its order."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mauve.core.events import Activity
from mauve.core.problems import Code, Problem
from mauve.metrics.sources import (
    CurrentMrr,
    EventCount,
    EventDays,
    EventNames,
    MrrHistory,
    PaymentTotals,
    Source,
    Users,
    UsersByDay,
)

ANY_ACTIVITY: Final = frozenset(Activity)
NAMES_MAX: Final = 10_000  # of event_names, the most frequent: clients choose names, and so how many there are


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    columns: tuple[str, ...]  # of a row, in the order in which its source gives them
    source: Source
    is_windowless: bool = False
    needs_name: bool = False
    rows_max: int | None = None  # more are left out, and the answer says so; None: an answer with too many is refused

    @property
    def is_raw_scan(self) -> bool:
        """Tell whether reading it spends the allowance of raw scans."""
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
