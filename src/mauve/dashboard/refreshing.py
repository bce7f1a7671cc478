"""Refreshing the numbers of a page: how often, and what the page says about it."""

import threading
from collections.abc import Iterable
from typing import Final

from mauve.core.problems import Code, Problem
from mauve.metrics.questions import Question
from mauve.overload.token_bucket import TokenBuckets
from mauve.query.numbers import Numbers

REFRESH_EVERY_S: Final = 5  # for one person
ORGANIZATION_BURST: Final = 10
_ORGANIZATION_REFILL_S: Final = 2


class RefreshLimits:
    """A refresh takes a token of the person and one of the organization, because it reads past the cache."""

    def __init__(self) -> None:
        self._people = TokenBuckets(1 / REFRESH_EVERY_S, 1)
        self._organizations = TokenBuckets(1 / _ORGANIZATION_REFILL_S, ORGANIZATION_BURST)
        self._taking = threading.Lock()

    def check(self, user_id: str, org_id: str, now_ms: int) -> None:
        """Take the tokens, or refuse the refresh and say when to try again."""
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
    """Read the answers again; return the name of the notice to show."""
    is_early = numbers.is_loading_behind()
    if not numbers.refresh(questions).is_current:
        return "partly-refreshed"
    return "refreshed-early" if is_early else "refreshed"
