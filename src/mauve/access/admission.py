"""Who is let in when more is asked of a process than it can do.

The line is kept short: as many are under way as are done in `WAIT_S_MAX`, at the pace of late. Whoever comes on top
is told at once to come back, which costs next to nothing, and those who were let in are answered in time. The line
belongs to all: when it is long enough, there is still room for who has less than half of what the busiest has in it.
"""

import time
from collections.abc import Callable
from typing import Final

WAIT_S_MAX: Final = 0.2
CROWDED_AFTER_S: Final = 0.025
BURST_S_MAX: Final = 1.0  # While nobody has to wait, more may come at once.
UNDER_WAY_MIN: Final = 16
UNDER_WAY_MAX: Final = 1024
_PACE_WEIGHT: Final = 1 / 64
_QUICK_S: Final = 0.001  # Nobody who was so quick has waited: there is little to learn, and it costs little.
_FLUSHES: Final = 2  # the one that a request just missed, and its own


class Admission:
    """Counts what is under way, by organization, from one event loop."""

    def __init__(self, flush_s: Callable[[], float], ticks: Callable[[], float] = time.monotonic) -> None:
        self._flush_s = flush_s
        self._ticks = ticks
        self._under_way: dict[str, int] = {}
        self._total = 0
        self._limit = UNDER_WAY_MAX
        self._pace_s = 0.001
        self._left_at = 0.0

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

    def enter(self, org_id: str) -> float:
        """Count a request from now on; return the moment. Whoever enters leaves."""
        self._under_way[org_id] = self._under_way.get(org_id, 0) + 1
        self._total += 1
        return self._ticks()

    def leave(self, org_id: str, entered_at: float) -> None:
        """Take a request off the count, and learn from how long it took."""
        now = self._ticks()
        others = self._under_way[org_id] - 1
        if others:
            self._under_way[org_id] = others
        else:
            del self._under_way[org_id]
        self._total -= 1
        # Time in which nothing was under way tells nothing of the pace.
        took_s = now - (max(entered_at, self._left_at))
        self._left_at = now
        if now - entered_at > _QUICK_S:
            self._learn(now - entered_at, took_s)
        else:
            self._pace_s += (took_s - self._pace_s) * _PACE_WEIGHT
            if self._limit < UNDER_WAY_MAX:
                self._limit += 1

    def _learn(self, waited_s: float, took_s: float) -> None:
        # A slow disk serves many with one sync: that wait does not grow with the line.
        flushes_s = _FLUSHES * self._flush_s()
        self._pace_s += (max(0.0, took_s - flushes_s) - self._pace_s) * _PACE_WEIGHT
        if waited_s - flushes_s > CROWDED_AFTER_S:
            self._limit = limit_at(self._pace_s, WAIT_S_MAX)
        else:
            self._limit = min(self._limit + 1, limit_at(self._pace_s, BURST_S_MAX))


def limit_at(pace_s: float, wait_s_max: float) -> int:
    """Return how many may be under way when one is done every `pace_s`, so that none waits longer."""
    if pace_s * UNDER_WAY_MAX <= wait_s_max:
        return UNDER_WAY_MAX
    return max(UNDER_WAY_MIN, int(wait_s_max / pace_s))
