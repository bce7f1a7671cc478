"""A bound on the bytes of request bodies that a process holds at once."""

import asyncio
from collections import deque


class ByteBudget:
    """Lets bodies in as long as their bytes fit; the others wait in line, unread, in their sender's hands."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Return when there is room. Whoever takes gives back."""
        if not self._line and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += size  # It was let in at the very moment it left.
            self._admit()
            raise

    def give_back(self, size: int) -> None:
        if size:
            self._free += size
            self._admit()

    def _admit(self) -> None:
        while self._line and (self._line[0][1].done() or self._line[0][0] <= self._free):
            size, turn = self._line.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)
