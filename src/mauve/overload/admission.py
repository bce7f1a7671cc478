"""Who is let in when more is asked of a process than it can do.

The line is kept short: as many are under way as are worked off in `WAIT_S_MAX`, by what each was worth in work of
late. Whoever comes on top is told at once to come back, which costs little, and those who were let in are answered in
time. The line belongs to all: when it is long enough, there is still room for who has less than half of what the
busiest has in it.
"""

import time
from collections.abc import Callable
from typing import Final

WAIT_S_MAX: Final = 0.2
CROWDED_AFTER_S: Final = 0.025
BURST_S_MAX: Final = 1.0  # While nobody has to wait, more may come at once.
UNDER_WAY_MIN: Final = 16
UNDER_WAY_MAX: Final = 1024
_WORK_WEIGHT: Final = 1 / 64
_FLUSHES: Final = 2  # the one that a request just missed, and its own
_ROUNDS: Final = 4  # of the event loop, from the body to the reply


class Slot:
    """One request under way: whose, since when, and how much work it is."""

    __slots__ = ("begun_at", "entered_at", "org_id", "work_s")

    org_id: str
    entered_at: float
    begun_at: float  # later, if it had to wait for its turn
    work_s: float | None

    def __init__(self, org_id: str) -> None:
        self.org_id = org_id
        self.work_s = None


class Admission:
    """Counts what is under way, by organization, from one event loop."""

    def __init__(
        self,
        flush_s: Callable[[], float],
        round_s: Callable[[], float],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush_s = flush_s
        self._round_s = round_s
        self.ticks = ticks
        self._under_way: dict[str, int] = {}
        self._total = 0
        self._limit = UNDER_WAY_MAX
        self._work_s = 0.0

    @property
    def limit(self) -> int:
        """Return how many may be under way now."""
        return self._limit

    @property
    def under_way(self) -> int:
        return self._total

    def is_full(self, org_id: str) -> bool:
        """Tell whether there is no room for one more of the organization's requests."""
        if self._total < self._limit:
            return False
        if self._total >= 2 * self._limit:
            return True
        return 2 * self._under_way.get(org_id, 0) >= max(self._under_way.values())

    def enter(self, stay: Slot) -> None:
        """Count a request from now on. Whoever enters leaves."""
        org_id = stay.org_id
        self._under_way[org_id] = self._under_way.get(org_id, 0) + 1
        self._total += 1
        stay.entered_at = stay.begun_at = self.ticks()

    def judged(self, stay: Slot, still_to_do_s: float = 0.0) -> None:
        """Note that a request has held the event loop until now, and how much work of others is still to come."""
        stay.work_s = self.ticks() - stay.begun_at + still_to_do_s

    def leave(self, stay: Slot) -> None:
        """Take a request off the count, and learn from it."""
        now = self.ticks()
        others = self._under_way[stay.org_id] - 1
        if others:
            self._under_way[stay.org_id] = others
        else:
            del self._under_way[stay.org_id]
        self._total -= 1
        # Not the time between two that are done: it grows with what is refused meanwhile, and there is no way back.
        work_s = now - stay.begun_at if stay.work_s is None else stay.work_s
        self._work_s += (work_s - self._work_s) * _WORK_WEIGHT
        if now - stay.entered_at > CROWDED_AFTER_S and self._is_crowd(now - stay.entered_at):
            self._limit = limit_at(self._work_s, WAIT_S_MAX)
        elif self._limit < UNDER_WAY_MAX or self._work_s * UNDER_WAY_MAX > BURST_S_MAX:
            self._limit = min(self._limit + 1, limit_at(self._work_s, BURST_S_MAX))

    def _is_crowd(self, waited_s: float) -> bool:
        """Tell whether somebody has waited for others. A sync and a round of the event loop serve many at once."""
        return waited_s - _FLUSHES * self._flush_s() - _ROUNDS * self._round_s() > CROWDED_AFTER_S


def limit_at(work_s: float, wait_s_max: float) -> int:
    """Return how many may be under way when each is so much work, so that none waits longer."""
    if work_s * UNDER_WAY_MAX <= wait_s_max:
        return UNDER_WAY_MAX
    return max(UNDER_WAY_MIN, int(wait_s_max / work_s))
