"""Which of two versions of a subscription is the later one when both carry the same moment.

Deliveries come late, twice and in any order, so the answer must lie in the versions themselves. Both billers use the
same words for the states of a subscription.
"""

from typing import Final

_FIRST: Final = frozenset({"incomplete"})
_LAST: Final = frozenset({"canceled", "incomplete_expired"})


def stage_of(status: str) -> int:
    """Return 0 for the state that is left for good, 2 for those that are never left, 1 for all between."""
    if status in _FIRST:
        return 0
    return 2 if status in _LAST else 1
