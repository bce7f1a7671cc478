"""A bound on the bytes of request bodies that a process holds at once."""

import asyncio
from collections import Counter, deque
from typing import Final

from mauve.core.problems import Busy

WAIT_S_MAX: Final = 1.0
_SHARE_MAX: Final = 3 / 4


class ByteBudget:
    """Lets bodies in as long as their bytes fit; the others wait in line, unread, in their sender's hands.

    A body may come slowly and hold its room meanwhile, so nobody has it all: one owner leaves a quarter to the
    others, and slow bodies of those who hold most go first when others wait. Whoever has waited for a second is told to
    come back.
    """

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._bytes_of_one_max = int(bytes_max * _SHARE_MAX)
        self._held: Counter[str] = Counter()
        self._lines: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def take(self, size: int, owner: str) -> None:
        """Return when there is room; raise when there is none for too long. Whoever takes gives back."""
        if not size:
            return
        if owner not in self._lines and self._fits(size, owner):
            self._hold(size, owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append((size, turn))
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except (asyncio.CancelledError, TimeoutError) as left:
            if turn.done() and not turn.cancelled():
                self.give_back(size, owner)  # It was let in at the very moment it left.
            self._admit()
            if isinstance(left, TimeoutError):
                raise Busy from None
            raise

    def give_back(self, size: int, owner: str) -> None:
        if size:
            self._hold(-size, owner)
            self._admit()

    def is_wanted(self) -> bool:
        """Tell whether anybody waits for room."""
        return bool(self._lines)

    def is_wanted_from(self, owner: str) -> bool:
        """Tell whether somebody waits for the room that an owner holds, and has less of it."""
        held = self._held.get(owner, 0)
        return any(self._held.get(other, 0) < held and line[0][0] > self._free for other, line in self._lines.items())

    def _fits(self, size: int, owner: str) -> bool:
        held = self._held.get(owner, 0)
        return size <= self._free and (not held or held + size <= self._bytes_of_one_max)

    def _hold(self, size: int, owner: str) -> None:
        self._free -= size
        self._held[owner] += size
        if not self._held[owner]:
            del self._held[owner]

    def _admit(self) -> None:
        for owner, line in list(self._lines.items()):
            while line and (line[0][1].done() or self._fits(line[0][0], owner)):
                size, turn = line.popleft()
                if not turn.done():
                    self._hold(size, owner)
                    turn.set_result(None)
            if not line:
                del self._lines[owner]
