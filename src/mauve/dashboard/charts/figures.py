"""The key figures of one project in a period, each compared with the previous period."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mauve.core.window import Window
from mauve.dashboard.charts.periods import Period
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.metrics.summaries import (
    Change,
    Rows,
    average_tenths,
    by_currency,
    by_day,
    change,
    mrr_on,
    rows_in,
    totals_by_currency,
)
from mauve.query.numbers import Answers

DRAWN_CURRENCIES_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its value in the previous period, and its daily values."""

    now: int
    before: int  # in the whole days of the previous period
    days: Sequence[int] = ()
    currency: str | None = None  # for money, in minor units; None for a count
    averaged_days: int = 0  # the first of `days`, for an average over them: then all values are in tenths
    whole: int | None = None  # in the whole days of this period; None: the same as `now`
    is_level: bool = False  # today's value is current, not that of an unfinished day

    @property
    def is_average(self) -> bool:
        return self.averaged_days > 0

    @property
    def is_rounded_to_zero(self) -> bool:
        """Return whether this is a nonzero average that rounds to 0, such as one user in a month."""
        return self.is_average and self.now == 0 and any(self.days[: self.averaged_days])

    @property
    def change(self) -> Change:
        return change(self.now if self.whole is None else self.whole, self.before)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a project. None means unavailable; money has one figure per currency."""

    mau: Figure | None
    dau: Figure | None  # the average over whole days; today's if there are none
    signups: Figure | None
    revenue: Sequence[Figure] | None
    mrr: Sequence[Figure] | None  # at the end of the period, compared with the end of the previous one

    @property
    def has_before(self) -> bool:
        """Return whether any figure has a value in the previous period."""
        counts = [figure for figure in (self.mau, self.dau, self.signups) if figure]
        return any(figure.before for figure in (*counts, *(self.revenue or ()), *(self.mrr or ())))


@dataclass(frozen=True, slots=True)
class ProjectQuestions:
    """Builds the questions about one project, the same as the API's."""

    project: str
    period: Period

    def now(self, metric: str) -> Question:
        return Question(self.project, METRICS[metric], self.period.window)

    def before(self, metric: str) -> Question:
        return Question(self.project, METRICS[metric], self.period.before)

    def compared(self, metric: str) -> list[Question]:
        """Return the questions about the whole days of both periods; none without whole days."""
        windows = (self.period.whole, self.period.whole_before)
        return [Question(self.project, METRICS[metric], window) for window in windows if window]

    @property
    def mrr(self) -> Question:
        return Question(self.project, METRICS["mrr"], Window(self.period.today, self.period.today))

    @property
    def for_figures(self) -> list[Question]:
        by_day = ("dau", "revenue", "mrr_history")
        now = map(self.now, (*by_day, "signups_daily", *_DISTINCT))
        compared = [question for metric in _DISTINCT for question in self.compared(metric)]
        return [*now, *map(self.before, by_day), *compared]


_DISTINCT: Final = ("mau", "signups")  # users of the whole period: not the sum of its days


def drawn_currencies(*answers: Mapping[str, Rows]) -> list[str]:
    """Return the currencies to draw: those with the most rows, up to a maximum.

    Clients choose the currencies, and each one drawn costs a number for every day.
    """
    counts: Counter[str] = Counter()
    for answer in answers:
        counts.update({currency: len(rows) for currency, rows in answer.items()})
    return sorted(sorted(counts, key=lambda currency: (-counts[currency], currency))[:DRAWN_CURRENCIES_MAX])


def figures_from(questions: ProjectQuestions, answers: Answers) -> Figures:
    return Figures(
        # MAU has no daily values: its sparkline shows the users active on each day.
        mau=_count(questions, answers, "mau", "dau", "dau"),
        dau=_daily_average(questions, answers),
        signups=_count(questions, answers, "signups", "signups_daily", "signups"),
        revenue=_revenue(questions, answers),
        mrr=_mrr(questions, answers),
    )


def sum_figures(figures: Sequence[Figure]) -> Figure:
    """Add figures of one kind and currency. The sum has daily values only if all of them have."""
    all_known = all(figure.days for figure in figures)
    days = [sum(values) for values in zip(*(each.days for each in figures), strict=True)] if all_known else []
    now, before = (sum(getattr(figure, name) for figure in figures) for name in ("now", "before"))
    whole = sum(figure.now if figure.whole is None else figure.whole for figure in figures)
    first = figures[0] if figures else Figure(0, 0)
    if first.is_average and days:
        now = average_tenths(days[: first.averaged_days])  # Many small averages would each be rounded to zero.
    return replace(first, now=now, before=before, days=days, whole=whole)


def _count(questions: ProjectQuestions, answers: Answers, metric: str, daily: str, column: str) -> Figure | None:
    found = [answers.rows(question) for question in (questions.now(metric), *questions.compared(metric))]
    if None in found:
        return None
    now, whole, before = [*(rows[0][metric] for rows in found if rows), 0, 0][:3]
    rows = answers.rows(questions.now(daily))
    days = [] if rows is None else by_day(rows, column, questions.period.window)
    return Figure(now, before, days, whole=whole)


def _daily_average(questions: ProjectQuestions, answers: Answers) -> Figure | None:
    now, before = answers.rows(questions.now("dau")), answers.rows(questions.before("dau"))
    if now is None or before is None:
        return None
    days = by_day(now, "dau", questions.period.window)
    days_before = by_day(before, "dau", questions.period.before)
    whole = len(days) - questions.period.has_today
    averaged = whole or len(days)
    return Figure(average_tenths(days[:averaged]), average_tenths(days_before[:whole]), days, averaged_days=averaged)


def _revenue(questions: ProjectQuestions, answers: Answers) -> list[Figure] | None:
    now, before = answers.rows(questions.now("revenue")), answers.rows(questions.before("revenue"))
    if now is None or before is None:
        return None
    period = questions.period
    own, own_before = by_currency(now), by_currency(before)
    sums, whole, earlier = (
        totals_by_currency(rows, "revenue")
        for rows in (now, rows_in(now, period.whole), rows_in(before, period.whole_before))
    )
    days = _days(questions, own, "revenue", own_before)
    return [
        Figure(sums.get(each, 0), earlier.get(each, 0), days.get(each, ()), each, whole=whole.get(each, 0))
        for each in sorted(sums.keys() | earlier.keys())
    ]


def _mrr(questions: ProjectQuestions, answers: Answers) -> list[Figure] | None:
    """Return the MRR at the end of the period. The history's value of today is the current MRR."""
    now, before = answers.rows(questions.now("mrr_history")), answers.rows(questions.before("mrr_history"))
    if now is None or before is None:
        return None
    current, earlier = mrr_on(questions.period.window.last, now), mrr_on(questions.period.before.last, before)
    days = _days(questions, by_currency(now), "mrr", by_currency(before))
    return [
        Figure(current.get(currency, 0), earlier.get(currency, 0), days.get(currency, ()), currency, is_level=True)
        for currency in sorted(current.keys() | earlier.keys())
    ]


def _days(
    questions: ProjectQuestions, rows: Mapping[str, Rows], column: str, *others: Mapping[str, Rows]
) -> dict[str, list[int]]:
    """Return the daily values of the currencies to draw."""
    drawn = drawn_currencies(rows, *others)
    return {currency: by_day(rows.get(currency, ()), column, questions.period.window) for currency in drawn}
