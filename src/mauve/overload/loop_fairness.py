"""A bound on how long work holds the event loop before whatever else waits for it has its turn."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

ROUND_S_MAX: Final = 0.002
_WOKEN_MIN: Final = 4
_ROUND_WEIGHT: Final = 1 / 16


class LoopFairness:
    """Puts off what comes when a round of the event loop has worked long enough.

    Work is quick or slow, and a round does all that is ready: without this, somebody who is to be refused would wait
    behind everybody who is not.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._began_at: float | None = None
        self._begun = 0  # in this round
        self._is_scheduled = False  # Whenever somebody waits, the next round is.
        self._round_s = 0.0
        self._line: deque[asyncio.Future[None]] = deque()
        self._put_off: list[asyncio.Future[None]] = []  # They were woken, and the round was over when they came.

    @property
    def round_s(self) -> float:
        """Return how long a round of the event loop takes, lately."""
        return self._round_s

    def is_over(self, now: float) -> bool:
        """Tell whether this round has had enough, and others should wait for the next; if not, one more has begun."""
        if self._line or not self._begin(now):
            return True
        if not self._is_scheduled:
            self._schedule()
        return False

    async def next(self) -> None:
        """Return in one of the next rounds, in the order of arrival."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._line.append(turn)
        await turn
        while not self._begin(self._ticks()):
            turn = loop.create_future()
            self._put_off.append(turn)
            await turn

    def _begin(self, now: float) -> bool:
        if self._began_at is None:
            self._began_at = now
        elif now - self._began_at > ROUND_S_MAX:
            return False
        self._begun += 1
        return True

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_scheduled = False
        if self._began_at is not None:
            self._round_s += (self._ticks() - self._began_at - self._round_s) * _ROUND_WEIGHT
        self._line.extendleft(reversed(self._put_off))
        self._put_off.clear()
        # Of those who were quick enough for one round there may be more in the next.
        woken = min(max(_WOKEN_MIN, 2 * self._begun), len(self._line))
        self._began_at, self._begun = None, 0
        for _ in range(woken):
            turn = self._line.popleft()
            if not turn.done():  # Its caller may have given up.
                turn.set_result(None)
        if woken:
            self._schedule()
