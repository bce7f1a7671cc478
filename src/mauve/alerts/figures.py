"""The numbers that alerts and digests report, from the same answers as the pages.

Reads go through the pages' cache and do not count toward the allowance. Stale answers count as missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from mauve.core.app import App
from mauve.core.text import count, money, tenths
from mauve.core.window import DAY, Window
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.query.numbers import Answers, Numbers

Rows = Sequence[Mapping[str, Any]]


def answers_about(numbers: Numbers, asked: Mapping[App, Iterable[Question]]) -> Answers:
    """Answer questions about apps. Leave no answer in the cache before an app's first event, which it would hide."""
    known = [question for app, own in asked.items() for question in own if app.first_event_at is not None]
    new = [question for app, own in asked.items() for question in own if app.first_event_at is None]
    return numbers.cached(known) | numbers.fresh(new)


class Measure(NamedTuple):
    """A metric of a project in a period. MRR is that of the last day, and `current_mrr` the current value."""

    project: str
    metric: str
    window: Window

    @property
    def question(self) -> Question:
        name = {"mrr": "mrr_history", "current_mrr": "mrr"}.get(self.metric, self.metric)
        return Question(self.project, METRICS[name], self.window)

    def amounts(self, answers: Answers) -> dict[str | None, int] | None:
        """Return the amount of each currency, or one number, in tenths for DAU. None: it cannot be read now."""
        rows = answers.current_rows(self.question)
        return None if rows is None else _amounts(self.metric, rows, self.window)


def whole_days_before(today: date, days: int) -> Window:
    """Return the days up to yesterday: a day that has just begun would look like a drop."""
    return Window(today - timedelta(days=days), today - DAY)


def _amounts(metric: str, rows: Rows, window: Window) -> dict[str | None, int]:
    match metric:
        case "dau":
            total = sum(row["dau"] for row in rows)
            return {None: (20 * total + window.length) // (2 * window.length)}
        case "revenue":
            sums: dict[str | None, int] = {}
            for row in rows:
                sums[row["currency"]] = sums.get(row["currency"], 0) + row["revenue"]
            return sums
        case "mrr":
            last = window.last.isoformat()
            return {row["currency"]: row["mrr"] for row in rows if row["day"] == last}
        case "current_mrr":
            return {row["currency"]: row["mrr"] for row in rows}
        case _:
            return {None: rows[0][metric]}


def amount_text(metric: str, amount: int, currency: str | None) -> str:
    if currency is not None:
        return money(amount, currency)
    return tenths(amount) if metric == "dau" else count(amount)
