"""When the numbers of a page were read."""

from datetime import date

import pytest

from mauve.core.window import Window
from mauve.dashboard.refreshing import SAME_AGE_MS, AsOf, as_of
from mauve.metrics.questions import Question
from mauve.metrics.registry import METRICS
from mauve.query.answer_cache import Answer, Freshness
from mauve.query.numbers import Answers

NOW = 1_800_000_000_000
DAY = Window(date(2027, 1, 15), date(2027, 1, 15))
QUESTIONS = {name: Question("proj_1", METRICS[name], DAY) for name in ("mau", "dau", "revenue", "mrr_history")}


def as_of_answers(**read_at):
    found = {name: None if at is None else Answer(b"", Freshness.HIT, at) for name, at in read_at.items()}
    answers = Answers({QUESTIONS[name].key: answer for name, answer in found.items()})
    return as_of(answers, [QUESTIONS[name] for name in read_at])


@pytest.mark.parametrize(
    ("read_at", "expected"),
    [
        ({"mau": NOW, "dau": NOW - 7}, AsOf(NOW - 7)),
        ({"mau": NOW, "revenue": NOW - SAME_AGE_MS}, AsOf(NOW - SAME_AGE_MS)),
        ({"mau": NOW - SAME_AGE_MS - 1, "revenue": NOW}, AsOf(NOW - SAME_AGE_MS - 1, NOW)),
        ({"mau": NOW, "revenue": 5, "mrr_history": 4}, AsOf(NOW, 4)),
        ({"mau": None, "revenue": NOW}, AsOf(NOW)),
        ({"mau": None}, AsOf(None)),
        ({}, AsOf(None)),
    ],
)
def test_the_oldest_number_dates_the_page_and_money_has_a_moment_of_its_own_only_if_it_differs(read_at, expected):
    assert as_of_answers(**read_at) == expected
