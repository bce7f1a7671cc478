"""When the numbers of a page were read: one moment, or a second one for money."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mauve.metrics.questions import Question
from mauve.query.numbers import Answers

SAME_AGE_MS: Final = 10_000  # The answers of one page are read at once, but a slow one may take seconds.


class AsOf(NamedTuple):
    at: int | None  # when the oldest number was read; None: there is none
    money_at: int | None = None  # when the oldest amount was read, if that is another moment


def as_of(answers: Answers, questions: Iterable[Question]) -> AsOf:
    """Date the numbers of a page. Money that has changed is read again, so it is often newer than the rest."""
    asked = list(questions)
    users_at = answers.read_at_of(each for each in asked if not each.is_money)
    money_at = answers.read_at_of(each for each in asked if each.is_money)
    if users_at is None or money_at is None:
        return AsOf(users_at or money_at)
    is_same = abs(users_at - money_at) <= SAME_AGE_MS
    return AsOf(min(users_at, money_at)) if is_same else AsOf(users_at, money_at)
