"""Arrivals: what became of the items that were sent to each project, counted by day for its owner.

They are for looking at, no part of any metric: a process that dies takes the counts of its last seconds along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from mauve.core.window import Window

DAYS_KEPT: Final = 92

ACCEPTED: Final = "accepted"
DUPLICATE: Final = "duplicate"  # a payment that was there already
REPEAT: Final = "repeat"  # an event whose id came again: stored, not counted
REJECTED: Final = "rejected"  # an item; behind a colon, the code of the rejection
REFUSED: Final = "refused"  # a whole request; behind a colon, the code of the problem

ProjectAndWord = tuple[str, str]


class IngestStats(NamedTuple):
    """Counts of one day, to be added to those that are there."""

    day: str  # YYYY-MM-DD
    last_at: int  # epoch ms: nothing of it came later
    counts: Mapping[ProjectAndWord, int]


@dataclass(frozen=True, slots=True, order=True)
class IngestCount:
    word: str
    count: int
    last_at: int


class IngestStatsReader(Protocol):
    def counts(self, project: str, window: Window) -> Sequence[IngestCount]:
        """Return how often each word was said of what came in these days, and when last: by word."""
        ...
