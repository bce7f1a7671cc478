"""The figures of one project in a period, each beside what it was in the period before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from mauve.core.window import Window
from mauve.dashboard.charts.numbers import Answers
from mauve.dashboard.charts.periods import Period
from mauve.dashboard.charts.series import (
    Change,
    Rows,
    amounts,
    amounts_on,
    average,
    by_currency,
    by_day,
    change,
    drawn_currencies,
)
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, the one of the period before, and the days between."""

    now: int
    before: int
    days: Sequence[int] = ()
    currency: str | None = None  # of money, in minor units; None: a count

    @property
    def change(self) -> Change:
        return change(self.now, self.before)


@dataclass(frozen=True, slots=True)
class Figures:
    """None: it cannot be read now. Money has one figure for each currency."""

    mau: Figure | None
    dau: Figure | None  # the average over the days
    signups: Figure | None
    revenue: Sequence[Figure] | None
    mrr: Sequence[Figure] | None  # now, against the end of the period before


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions behind the figures: those of the API, word for word."""

    project: str
    period: Period
    today: date

    def now(self, metric: str) -> Question:
        return Question(self.project, METRICS[metric], self.period.window)

    def before(self, metric: str) -> Question:
        return Question(self.project, METRICS[metric], self.period.before)

    @property
    def mrr(self) -> Question:
        return Question(self.project, METRICS["mrr"], Window(self.today, self.today))

    @property
    def questions(self) -> list[Question]:
        both = ("mau", "dau", "signups", "revenue", "mrr_history")
        return [*map(self.now, (*both, "signups_daily")), *map(self.before, both), self.mrr]


def figures_from(asked: Asked, readings: Answers) -> Figures:
    return Figures(
        # A month has no days of its own: the line shows how many were active on each.
        mau=_count(asked, readings, "mau", "dau", "dau"),
        dau=_daily_average(asked, readings),
        signups=_count(asked, readings, "signups", "signups_daily", "signups"),
        revenue=_revenue(asked, readings),
        mrr=_mrr(asked, readings),
    )


def added_figures(figures: Sequence[Figure]) -> Figure:
    """Return the sum of figures of one kind and currency; without its days if those of one are not known."""
    all_known = all(figure.days for figure in figures)
    days = [sum(of_day) for of_day in zip(*(each.days for each in figures), strict=True)] if all_known else []
    now, before = (sum(getattr(figure, name) for figure in figures) for name in ("now", "before"))
    return Figure(now, before, days, figures[0].currency if figures else None)


def _count(asked: Asked, readings: Answers, metric: str, daily: str, column: str) -> Figure | None:
    now, before = readings.rows(asked.now(metric)), readings.rows(asked.before(metric))
    if now is None or before is None:
        return None
    rows = readings.rows(asked.now(daily))
    days = [] if rows is None else by_day(rows, column, asked.period.window)
    return Figure(now[0][metric], before[0][metric], days)


def _daily_average(asked: Asked, readings: Answers) -> Figure | None:
    now, before = readings.rows(asked.now("dau")), readings.rows(asked.before("dau"))
    if now is None or before is None:
        return None
    days = by_day(now, "dau", asked.period.window)
    return Figure(average(days), average(by_day(before, "dau", asked.period.before)), days)


def _revenue(asked: Asked, readings: Answers) -> list[Figure] | None:
    now, before = readings.rows(asked.now("revenue")), readings.rows(asked.before("revenue"))
    if now is None or before is None:
        return None
    own, own_before = by_currency(now), by_currency(before)
    sums, earlier = amounts(own, "revenue"), amounts(own_before, "revenue")
    days = _days(asked, own, "revenue", own_before)
    return [
        Figure(sums.get(currency, 0), earlier.get(currency, 0), days.get(currency, ()), currency)
        for currency in sorted(sums.keys() | earlier.keys())
    ]


def _mrr(asked: Asked, readings: Answers) -> list[Figure] | None:
    now, history = readings.rows(asked.mrr), readings.rows(asked.now("mrr_history"))
    before = readings.rows(asked.before("mrr_history"))
    if now is None or history is None or before is None:
        return None
    own, own_before = by_currency(now), by_currency(before)
    current, earlier = amounts(own, "mrr"), amounts_on(before, "mrr", asked.period.before)
    days = _days(asked, by_currency(history), "mrr", own, own_before)
    return [
        Figure(current.get(currency, 0), earlier.get(currency, 0), days.get(currency, ()), currency)
        for currency in sorted(current.keys() | earlier.keys())
    ]


def _days(asked: Asked, rows: Mapping[str, Rows], column: str, *others: Mapping[str, Rows]) -> dict[str, list[int]]:
    """Return the days of the currencies that are drawn."""
    drawn = drawn_currencies(rows, *others)
    return {currency: by_day(rows.get(currency, ()), column, asked.period.window) for currency in drawn}
