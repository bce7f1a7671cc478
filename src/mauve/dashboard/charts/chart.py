"""The charts of an app's page: one per metric, and for money one per currency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from mauve.dashboard.charts.figures import ProjectQuestions, drawn_currencies
from mauve.dashboard.charts.periods import Period
from mauve.dashboard.charts.svg import Plot, plot
from mauve.metrics.summaries import Rows, by_currency, by_day
from mauve.query.numbers import Answers

_LABELS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric day by day, compared with the previous period."""

    metric: str
    title: str
    period: Period
    numbers: Sequence[int]
    before: Sequence[int]
    currency: str | None = None
    is_level: bool = False

    @property
    def id(self) -> str:
        return f"chart-{self.metric}-{self.currency}" if self.currency else f"chart-{self.metric}"

    @property
    def plot(self) -> Plot:
        return plot(self.numbers, self.before, has_today=self.is_unfinished)

    @property
    def is_unfinished(self) -> bool:
        """Return whether the last number is today's and may still grow."""
        return self.period.has_today and not self.is_level

    @property
    def day_labels(self) -> list[date]:
        """Return the first, middle and last day, as axis labels."""
        days = self.period.window.days
        return [days[0], days[len(days) // 2], days[-1]] if len(days) >= _LABELS_MAX else days

    @property
    def table(self) -> list[tuple[date, int, date, int]]:
        """Return each day and its number, with those of the previous period."""
        days = zip(self.period.window.days, self.numbers, self.period.before.days, self.before, strict=True)
        return list(days)


@dataclass(frozen=True, slots=True)
class ChartType:
    metric: str
    column: str
    title: str
    is_money: bool = False
    is_level: bool = False


CHART_TYPES: Final = (
    ChartType("dau", "dau", "Daily active users"),
    ChartType("signups_daily", "signups", "Signups"),
    ChartType("revenue", "revenue", "Gross revenue", is_money=True),
    ChartType("mrr_history", "mrr", "MRR", is_money=True, is_level=True),
    ChartType("volume", "volume", "Volume processed for others", is_money=True),
)


def charts_from(questions: ProjectQuestions, answers: Answers) -> list[Chart]:
    return [chart for chart_type in CHART_TYPES for chart in _charts_of(chart_type, questions, answers)]


def _charts_of(chart_type: ChartType, questions: ProjectQuestions, answers: Answers) -> Iterator[Chart]:
    """Yield the charts of a type: none if it is unavailable or has no currency to draw."""
    now = answers.rows(questions.now(chart_type.metric))
    before = answers.rows(questions.before(chart_type.metric))
    if now is None or before is None:
        return
    if not chart_type.is_money:
        yield _chart(chart_type, questions.period, now, before, None)
        return
    own, own_before = by_currency(now), by_currency(before)
    for currency in drawn_currencies(own, own_before):
        yield _chart(chart_type, questions.period, own.get(currency, ()), own_before.get(currency, ()), currency)


def _chart(chart_type: ChartType, period: Period, now: Rows, before: Rows, currency: str | None) -> Chart:
    title = f"{chart_type.title}, {currency.upper()}" if currency else chart_type.title
    return Chart(
        chart_type.metric,
        title,
        period,
        numbers=by_day(now, chart_type.column, period.window),
        before=by_day(before, chart_type.column, period.before),
        currency=currency,
        is_level=chart_type.is_level,
    )


def event_chart(name: str, period: Period, now: Rows, before: Rows) -> Chart:
    """Return the chart of one event's daily counts."""
    numbers, earlier = by_day(now, "count", period.window), by_day(before, "count", period.before)
    return Chart("event_series", name, period, numbers, earlier)
