"""Read metrics: `Metrics`, and `AsyncMetrics` for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime, timezone
from functools import partial
from typing import Any, Generic, TypeVar, Union
from urllib.parse import quote, urlencode

from mauve_metrics._calls import AsyncCaller, Caller, Reply, awaited
from mauve_metrics.errors import InvalidBody, MauveError

Day = Union[date, str]  # a date, or YYYY-MM-DD; of a datetime, its date in UTC


@dataclass(frozen=True)
class MauRow:
    mau: int


@dataclass(frozen=True)
class DauRow:
    day: date
    dau: int


@dataclass(frozen=True)
class SignupsRow:
    signups: int


@dataclass(frozen=True)
class SignupsDailyRow:
    day: date
    signups: int


@dataclass(frozen=True)
class RevenueRow:
    day: date
    currency: str
    revenue: int  # minor units


@dataclass(frozen=True)
class VolumeRow:
    day: date
    currency: str
    volume: int  # minor units


@dataclass(frozen=True)
class MrrRow:
    currency: str
    mrr: int  # minor units


@dataclass(frozen=True)
class MrrHistoryRow:
    day: date
    currency: str
    mrr: int  # minor units, at the end of the day


@dataclass(frozen=True)
class EventNameRow:
    name: str
    count: int


@dataclass(frozen=True)
class EventCountRow:
    name: str
    count: int


@dataclass(frozen=True)
class EventSeriesRow:
    day: date
    count: int


Row = TypeVar("Row")
_EXPECTED = "Metrics needs a server key (sk_live_…), or a control token (ctl_live_…) with the scope metrics:read"


@dataclass(frozen=True)
class MetricResult(Generic[Row]):
    """The answer to a read."""

    metric: str
    project: str
    date_from: date
    date_to: date
    rows: list[Row]
    cache: str  # hit, miss, uncached or stale
    age: int | None  # seconds, if stale


class Metrics:
    """Read the metrics of an app. With a control token, `project` names the app by its public id."""

    def __init__(self, token_or_key: str, *, url: str, project: str | None = None, timeout: float = 10.0) -> None:
        self._caller = Caller(token_or_key, url, timeout, _EXPECTED)
        self._project = project

    def mau(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[MauRow]:
        return self._read("mau", MauRow, date_from, date_to)

    def dau(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[DauRow]:
        return self._read("dau", DauRow, date_from, date_to)

    def signups(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[SignupsRow]:
        return self._read("signups", SignupsRow, date_from, date_to)

    def signups_daily(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[SignupsDailyRow]:
        return self._read("signups_daily", SignupsDailyRow, date_from, date_to)

    def revenue(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[RevenueRow]:
        return self._read("revenue", RevenueRow, date_from, date_to)

    def volume(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[VolumeRow]:
        return self._read("volume", VolumeRow, date_from, date_to)

    def mrr(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[MrrRow]:
        """Return the current MRR: the service ignores `date_from`."""
        return self._read("mrr", MrrRow, date_from, date_to)

    def mrr_history(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[MrrHistoryRow]:
        return self._read("mrr_history", MrrHistoryRow, date_from, date_to)

    def event_names(self, date_from: Day | None = None, date_to: Day | None = None) -> MetricResult[EventNameRow]:
        return self._read("event_names", EventNameRow, date_from, date_to)

    def event_count(
        self, name: str, date_from: Day | None = None, date_to: Day | None = None
    ) -> MetricResult[EventCountRow]:
        return self._read("event_count", EventCountRow, date_from, date_to, name)

    def event_series(
        self, name: str, date_from: Day | None = None, date_to: Day | None = None
    ) -> MetricResult[EventSeriesRow]:
        return self._read("event_series", EventSeriesRow, date_from, date_to, name)

    def _read(
        self,
        metric: str,
        kind: type[Row],
        date_from: Day | None = None,
        date_to: Day | None = None,
        name: str | None = None,
    ) -> MetricResult[Row]:
        asked = {"date_from": _day(date_from), "date_to": _day(date_to), "name": name, "project": self._project}
        try:
            query = urlencode({key: str(value) for key, value in asked.items() if value is not None})
        except UnicodeEncodeError:
            raise InvalidBody("a string holds a lone surrogate, which is not a character: remove it") from None
        path = f"/v1/metrics/{quote(metric)}" + (query and f"?{query}")
        return self._caller.call("GET", path, partial(_result, kind))


class AsyncMetrics:
    """The same for asyncio. Nothing runs in the loop's executor."""

    def __init__(self, token_or_key: str, *, url: str, project: str | None = None, timeout: float = 10.0) -> None:
        self._caller = AsyncCaller(token_or_key, url, timeout, _EXPECTED)
        self._project = project

    _read = Metrics._read  # noqa: SLF001 - of the methods below

    mau = awaited(Metrics.mau)
    dau = awaited(Metrics.dau)
    signups = awaited(Metrics.signups)
    signups_daily = awaited(Metrics.signups_daily)
    revenue = awaited(Metrics.revenue)
    volume = awaited(Metrics.volume)
    mrr = awaited(Metrics.mrr)
    mrr_history = awaited(Metrics.mrr_history)
    event_names = awaited(Metrics.event_names)
    event_count = awaited(Metrics.event_count)
    event_series = awaited(Metrics.event_series)


def _day(day: Day | None) -> Day | None:
    """Return the date of a time, in UTC if it has a timezone: the service's days are UTC."""
    if not isinstance(day, datetime):
        return day
    return (day if day.utcoffset() is None else day.astimezone(timezone.utc)).date()


def _row(kind: type[Row], content: Mapping[str, Any]) -> Row:
    """Return the known fields of a JSON object as a row. A newer service may send more."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type] # always a dataclass
    return kind(**{name: date.fromisoformat(content[name]) if name == "day" else content[name] for name in names})


def _result(kind: type[Row], reply: Reply) -> MetricResult[Row]:
    age = reply.headers.get("x-cache-age", "")
    try:
        return MetricResult(
            metric=reply.content["metric"],
            project=reply.content["project"],
            date_from=date.fromisoformat(reply.content["date_from"]),
            date_to=date.fromisoformat(reply.content["date_to"]),
            rows=[_row(kind, each) for each in reply.content["data"]],
            cache=reply.headers.get("x-cache", ""),
            age=int(age) if age.isdigit() else None,
        )
    except (KeyError, TypeError, ValueError):
        raise MauveError("the answer is not a metric: check that url is the address of the service") from None
