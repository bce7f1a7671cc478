"""Limit how long heavy work holds the event loop in one round, so that quick replies do not queue after it."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

ROUND_S_MAX: Final = 0.002
_WOKEN_MIN: Final = 4
_ROUND_WEIGHT: Final = 1 / 16


class LoopFairness:
    """Defer work once a round of the event loop has used its time.

    The event loop runs everything that is ready in one round. Without a limit, a request that is only refused would
    wait for all the heavy ones before it.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._started_at: float | None = None
        self._started = 0  # in this round
        self._is_scheduled = False  # True whenever the queue is not empty.
        self._round_s = 0.0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._deferred: list[asyncio.Future[None]] = []  # woken, but after the round had used its time

    @property
    def round_s(self) -> float:
        """Return how long a round of the event loop took recently."""
        return self._round_s

    def should_wait(self, now: float) -> bool:
        """Return whether to wait for a later round; if not, count this work toward the current one."""
        if self._queue or not self._start(now):
            return True
        if not self._is_scheduled:
            self._schedule()
        return False

    async def wait(self) -> None:
        """Wait for a later round, in order of arrival."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self._queue.append(woken)
        await woken
        while not self._start(self._ticks()):
            woken = loop.create_future()
            self._deferred.append(woken)
            await woken

    def _start(self, now: float) -> bool:
        if self._started_at is None:
            self._started_at = now
        elif now - self._started_at > ROUND_S_MAX:
            return False
        self._started += 1
        return True

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_scheduled = False
        if self._started_at is not None:
            self._round_s += (self._ticks() - self._started_at - self._round_s) * _ROUND_WEIGHT
        self._queue.extendleft(reversed(self._deferred))
        self._deferred.clear()
        # If this many fit into one round, twice as many may fit into the next.
        count = min(max(_WOKEN_MIN, 2 * self._started), len(self._queue))
        self._started_at, self._started = None, 0
        for _ in range(count):
            woken = self._queue.popleft()
            if not woken.done():  # Its caller may have given up.
                woken.set_result(None)
        if count:
            self._schedule()
