"""The charts of an app's page: one per metric, and for money one per currency, with their SVG coordinates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Final, NamedTuple

from mauve.dashboard.charts.figures import ProjectQuestions, drawn_currencies
from mauve.dashboard.charts.periods import Period
from mauve.metrics.summaries import Rows, by_currency, by_day
from mauve.query.numbers import Answers

WIDTH: Final = 1000
HEIGHT: Final = 200
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 32
_SPARK_MARGIN: Final = 2
_STEP_COUNTS: Final = (4, 5, 3)  # between zero and the top, in order of preference
_NICE_STEPS: Final = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))
_LABELS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart's coordinates: this period as a line over an area, the previous period as a second line."""

    line: str  # of whole days
    dot: str  # in place of the line if there is only one whole day before today
    area: str
    today: str  # from the last whole day to today, which is unfinished; empty if the period is past
    before: str
    ticks: tuple[int, ...]  # values of the horizontal grid lines, from the top down
    rules: tuple[str, ...]  # their heights


class Spark(NamedTuple):
    line: str
    today: str


def plot(numbers: Sequence[int], before: Sequence[int], *, has_today: bool = False) -> Plot:
    ticks = axis_ticks(max((*numbers, *before), default=0))
    top = ticks[0]
    whole, today = _whole_and_today(_points(numbers, top, WIDTH, HEIGHT), len(numbers), has_today=has_today)
    return Plot(
        line=" ".join(whole) if len(whole) > 1 else "",
        dot=f"{whole[0]} {whole[0]}" if len(whole) == 1 else "",  # With round ends, a zero-length line is a dot.
        area=" ".join((*whole, f"{whole[-1].partition(',')[0]},{HEIGHT}", f"0,{HEIGHT}")) if len(whole) > 1 else "",
        today=" ".join(today),
        before=" ".join(_points(before, top, WIDTH, HEIGHT)) if any(before) else "",  # Omit a line of zeros.
        ticks=ticks,
        rules=tuple(_rounded((top - tick) * HEIGHT, top) for tick in ticks),
    )


def spark(numbers: Sequence[int], *, has_today: bool = False) -> Spark:
    """Return the points of a sparkline, scaled from zero to the highest number, with a margin for the stroke."""
    top = max((*numbers, 1))
    points = _points(numbers, top, SPARK_WIDTH, SPARK_HEIGHT - 2 * _SPARK_MARGIN, _SPARK_MARGIN)
    whole, today = _whole_and_today(points, len(numbers), has_today=has_today)
    return Spark(" ".join(whole), " ".join(today))


def _whole_and_today(points: list[str], count: int, *, has_today: bool) -> tuple[list[str], list[str]]:
    """Split the points of `count` numbers where today begins."""
    if not has_today:
        return points, []
    return points[: count - 1], points[-2:]


def axis_ticks(highest: int) -> tuple[int, ...]:
    """Return round values in three to five equal steps, from the lowest round top that fits the highest, to zero."""
    step, count = min(
        ((_nice_step(highest, count), count) for count in _STEP_COUNTS), key=lambda choice: choice[0] * choice[1]
    )
    return tuple(step * number for number in range(count, -1, -1))


def _nice_step(highest: int, count: int) -> int:
    """Return the smallest round number that reaches the highest in `count` steps."""
    least = max(-(-highest // count), 1)
    power = 10 ** (len(str(least)) - 1)
    steps = (factor * power for factor in _NICE_STEPS)
    return next(int(step) for step in steps if step >= least and step.denominator == 1)


def _points(numbers: Sequence[int], top: int, width: int, height: int, margin: int = 0) -> list[str]:
    """Return each point as `x,y`; a single number becomes a horizontal line."""
    drawn = list(numbers) * 2 if len(numbers) == 1 else list(numbers)
    last = len(drawn) - 1
    return [
        f"{_rounded(index * width, last)},{_rounded((top - number) * height, top, margin)}"
        for index, number in enumerate(drawn)
    ]


def _rounded(numerator: int, denominator: int, offset: int = 0) -> str:
    """Return a quotient with at most one decimal. Amounts of money may be too large for a float."""
    tenths = (2 * 10 * numerator + denominator) // (2 * denominator) + 10 * offset
    whole, rest = divmod(tenths, 10)
    return f"{whole}.{rest}" if rest else str(whole)


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
