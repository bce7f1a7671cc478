"""The age of a page's numbers, and how often they may be refreshed."""

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from mauve.core.problems import Code, Problem
from mauve.metrics.questions import Question
from mauve.overload.token_bucket import TokenBuckets
from mauve.query.numbers import Answers, Numbers

REFRESH_EVERY_S: Final = 5  # for one person
ORGANIZATION_BURST: Final = 10
_ORGANIZATION_REFILL_S: Final = 2
SAME_AGE_MS: Final = 10_000  # The answers of one page are read together, but a slow one may take seconds.


class RefreshLimits:
    """Limits refreshes per person and per organization, because they bypass the cache."""

    def __init__(self) -> None:
        self._people = TokenBuckets(1 / REFRESH_EVERY_S, 1)
        self._organizations = TokenBuckets(1 / _ORGANIZATION_REFILL_S, ORGANIZATION_BURST)
        self._taking = threading.Lock()

    def check(self, user_id: str, org_id: str, now_ms: int) -> None:
        """Take the tokens, or refuse the refresh with the time of the next retry."""
        with self._taking:
            wait_s = self._people.seconds_to_wait(user_id, now_ms)
            if wait_s:
                message = f"refreshed {REFRESH_EVERY_S - wait_s} s ago; try again in {wait_s} s"
                raise Problem(Code.RATE_LIMITED, message, retry_after_s=wait_s)
            wait_s = self._organizations.seconds_to_wait(org_id, now_ms)
            if wait_s:
                message = f"your organization is refreshing often; try again in {wait_s} s"
                raise Problem(Code.RATE_LIMITED, message, retry_after_s=wait_s)


def refresh(numbers: Numbers, questions: Iterable[Question]) -> str:
    """Refresh the answers; return the name of the notice to show."""
    is_early = numbers.is_loading_behind()
    if not numbers.refresh(questions).is_current:
        return "partly-refreshed"
    return "refreshed-early" if is_early else "refreshed"


class AsOf(NamedTuple):
    at: int | None  # when the oldest number was read; None: there is none
    money_at: int | None = None  # when the oldest amount was read, if different


def as_of(answers: Answers, questions: Iterable[Question]) -> AsOf:
    """Date the numbers of a page. Changed money is reread, so it is often newer than the rest."""
    asked = list(questions)
    users_at = answers.read_at_of(each for each in asked if not each.is_money)
    money_at = answers.read_at_of(each for each in asked if each.is_money)
    if users_at is None or money_at is None:
        return AsOf(users_at or money_at)
    is_same = abs(users_at - money_at) <= SAME_AGE_MS
    return AsOf(min(users_at, money_at)) if is_same else AsOf(users_at, money_at)
