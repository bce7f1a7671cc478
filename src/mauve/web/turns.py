"""A bound on how long work holds the event loop before whatever else waits for it has its turn."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

ROUND_S_MAX: Final = 0.002
_WOKEN_MAX: Final = 64


class Turns:
    """Puts off what comes when a round of the event loop has worked long enough.

    Work is quick or slow, and a round does all that is ready: without this, somebody who is to be refused would wait
    behind everybody who is not.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._began_at: float | None = None
        self._woken = 1
        self._line: deque[asyncio.Future[None]] = deque()

    def is_over(self, now: float) -> bool:
        """Tell whether this round has had enough, and others should wait for the next."""
        if self._began_at is None:
            self._began_at = now
            asyncio.get_running_loop().call_soon(self._next_round)
            return False
        return bool(self._line) or now - self._began_at > ROUND_S_MAX

    async def next(self) -> None:
        """Return in one of the next rounds, in the order of arrival."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        await turn

    def _next_round(self) -> None:
        now = self._ticks()
        is_long = self._began_at is not None and now - self._began_at > ROUND_S_MAX
        self._woken = 1 if is_long else min(_WOKEN_MAX, 2 * self._woken)
        self._began_at = None
        for _ in range(min(self._woken, len(self._line))):
            turn = self._line.popleft()
            if not turn.done():  # Its caller may have given up.
                turn.set_result(None)
        if self._line:
            self._began_at = now
            asyncio.get_running_loop().call_soon(self._next_round)
