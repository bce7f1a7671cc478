"""The charts of an app's page: one for each metric, and for money one for each currency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from mauve.core.window import Window
from mauve.dashboard.charts.figures import Asked
from mauve.dashboard.charts.numbers import Answers
from mauve.dashboard.charts.periods import Period
from mauve.dashboard.charts.series import Rows, by_currency, by_day, drawn_currencies
from mauve.dashboard.charts.svg import Curves, curves


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric day by day, beside the period before."""

    metric: str
    title: str
    period: Period
    numbers: Sequence[int]
    before: Sequence[int]
    currency: str | None = None

    @property
    def id(self) -> str:
        return f"chart-{self.metric}-{self.currency}" if self.currency else f"chart-{self.metric}"

    @property
    def curves(self) -> Curves:
        return curves(self.numbers, self.before)

    @property
    def marks(self) -> list[date]:
        """Return the days that are written below: the first, the one in the middle, the last."""
        days = self.period.window.days
        return [days[0], days[len(days) // 2], days[-1]] if len(days) > 2 else days  # noqa: PLR2004 - as it says

    @property
    def table(self) -> list[tuple[date, int, date, int]]:
        """Return each day and its number, with the day and number of the period before."""
        days = zip(self.period.window.days, self.numbers, self.period.before.days, self.before, strict=True)
        return list(days)


@dataclass(frozen=True, slots=True)
class Kind:
    metric: str
    column: str
    title: str
    has_money: bool = False


KINDS = (
    Kind("dau", "dau", "Daily active users"),
    Kind("signups_daily", "signups", "Signups"),
    Kind("revenue", "revenue", "Revenue", has_money=True),
    Kind("mrr_history", "mrr", "MRR", has_money=True),
    Kind("volume", "volume", "Volume processed for others", has_money=True),
)


def charts_from(asked: Asked, readings: Answers) -> list[Chart]:
    return [chart for kind in KINDS for chart in _charts_of(kind, asked, readings)]


def _charts_of(kind: Kind, asked: Asked, readings: Answers) -> Iterator[Chart]:
    """Yield the charts of a kind; none if it cannot be read, or if no money was ever there."""
    now, before = readings.rows(asked.now(kind.metric)), readings.rows(asked.before(kind.metric))
    if now is None or before is None:
        return
    if not kind.has_money:
        yield _chart(kind, asked.period, now, before, None)
        return
    own, own_before = by_currency(now), by_currency(before)
    for currency in drawn_currencies(own, own_before):
        yield _chart(kind, asked.period, own.get(currency, ()), own_before.get(currency, ()), currency)


def _chart(kind: Kind, period: Period, now: Rows, before: Rows, currency: str | None) -> Chart:
    title = f"{kind.title}, {currency.upper()}" if currency else kind.title
    return Chart(
        kind.metric,
        title,
        period,
        numbers=by_day(now, kind.column, period.window),
        before=by_day(before, kind.column, period.before),
        currency=currency,
    )


def event_chart(name: str, period: Period, now: Rows, before: Rows) -> Chart:
    """Return the chart of one event's counts."""
    numbers, earlier = _counts(now, period.window), _counts(before, period.before)
    return Chart("event_series", name, period, numbers, earlier)


def _counts(rows: Rows, window: Window) -> list[int]:
    return by_day(rows, "count", window)
