"""Limit the bytes of request bodies that a process buffers at once."""

import asyncio
from collections import Counter, deque
from typing import Final

from mauve.core.problems import Busy

WAIT_S_MAX: Final = 1.0
_SHARE_MAX: Final = 3 / 4


class ByteBudget:
    """Admit bodies while their bytes fit; queue the others unread, at their sender.

    A slow body holds its room while it arrives. So one owner can hold at most three quarters, and when others wait,
    the slow bodies of the largest holders are evicted first. After a second in the queue a request is refused.
    """

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._bytes_per_owner_max = int(bytes_max * _SHARE_MAX)
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def acquire(self, size: int, owner: str) -> None:
        """Wait for room; raise `Busy` if that takes too long. Every `acquire` needs a `release`."""
        if not size:
            return
        if owner not in self._queues and self._fits(size, owner):
            self._hold(size, owner)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append((size, admitted))
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await admitted
        except (asyncio.CancelledError, TimeoutError) as error:
            if admitted.done() and not admitted.cancelled():
                self.release(size, owner)  # It was admitted at the very moment it gave up.
            self._admit()
            if isinstance(error, TimeoutError):
                raise Busy from None
            raise

    def release(self, size: int, owner: str) -> None:
        if size:
            self._hold(-size, owner)
            self._admit()

    def has_waiters(self) -> bool:
        return bool(self._queues)

    def should_evict(self, owner: str) -> bool:
        """Return whether an owner that holds less waits for room that this owner holds."""
        held = self._held.get(owner, 0)
        return any(
            self._held.get(other, 0) < held and queue[0][0] > self._free for other, queue in self._queues.items()
        )

    def _fits(self, size: int, owner: str) -> bool:
        held = self._held.get(owner, 0)
        return size <= self._free and (not held or held + size <= self._bytes_per_owner_max)

    def _hold(self, size: int, owner: str) -> None:
        self._free -= size
        self._held[owner] += size
        if not self._held[owner]:
            del self._held[owner]

    def _admit(self) -> None:
        for owner, queue in list(self._queues.items()):
            while queue and (queue[0][1].done() or self._fits(queue[0][0], owner)):
                size, admitted = queue.popleft()
                if not admitted.done():
                    self._hold(size, owner)
                    admitted.set_result(None)
            if not queue:
                del self._queues[owner]
