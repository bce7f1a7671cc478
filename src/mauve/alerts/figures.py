"""The numbers that alerts and digests report, from the same answers as the pages.

Reads go through the pages' cache and do not count toward the allowance. Stale answers count as missing.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mauve.core.app import App
from mauve.core.text import count, money, tenths
from mauve.core.window import Window
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.metrics.summaries import amounts_of
from mauve.query.numbers import Answers, Numbers


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
        return None if rows is None else amounts_of(self.question.metric.name, rows, self.window)


def amount_text(metric: str, amount: int, currency: str | None) -> str:
    if currency is not None:
        return money(amount, currency)
    return tenths(amount) if metric == "dau" else count(amount)
