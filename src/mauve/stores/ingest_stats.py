"""Ingest stats: what became of the items sent to each project, counted by day for its owner.

They are informational and not part of any metric: a process that dies loses the counts of its last seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

DAYS_KEPT: Final = 92

ACCEPTED: Final = "accepted"  # an event or payment
ACCEPTED_OBJECT: Final = "accepted_object"  # a subscription
DUPLICATE: Final = "duplicate"  # a payment that was already recorded
REPEAT: Final = "repeat"  # an event with a repeated id: stored, not counted
SUPPRESSED: Final = "suppressed"  # a repeat from a server key whose id counts for a publishable key
REJECTED: Final = "rejected"  # an item; a colon and the rejection code follow
REFUSED: Final = "refused"  # a whole request; a colon and the problem code follow
# Accepted items to check.
MOVED_PAST: Final = "moved_past"  # before the window; a colon and the claimed day, or for older ones the month, follow
MOVED_PAST_EARLIER: Final = f"{MOVED_PAST}:earlier"  # before the months that are counted individually
MOVED_FUTURE: Final = "moved_future"  # a time after the window
AT_IN_SECONDS: Final = "at_in_seconds"  # `at` looks like epoch seconds
TIME_MISNAMED: Final = "time_misnamed"  # no `at`, but a field that is ignored; a colon and its name follow
STATUS_RESEMBLES: Final = "status_resembles"  # a misspelled status; a colon and the known one follow
SIGNUP_RESEMBLES: Final = "signup_resembles"  # a name that is almost user_signup

KEY_USED: Final = "key"  # a colon and the key's id follow; counted by month, to take few rows

ProjectAndWord = tuple[str, str]


class IngestStats(NamedTuple):
    """Counts of one day, to add to the stored ones."""

    day: str  # YYYY-MM-DD
    last_at: int  # epoch ms: no item is later
    counts: Mapping[ProjectAndWord, int]


@dataclass(frozen=True, slots=True, order=True)
class IngestCount:
    word: str
    count: int
    last_at: int
