"""Admission control: shed load that a process cannot finish in time.

Admit at most `WAIT_S_MAX` of work, estimated from recent requests; refuse the rest immediately, which is cheap. With a
full queue, an organization still gets a fair share: it is admitted while it has less than half as many requests in
flight as the busiest organization.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from mauve.core.problems import Busy

ROOM_WAIT_S_MAX: Final = 1.0  # for the bytes of a body
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
            async with asyncio.timeout(ROOM_WAIT_S_MAX):
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
        self.round_s = 0.0  # how long a round of the event loop took recently
        self._queue: deque[asyncio.Future[None]] = deque()
        self._deferred: list[asyncio.Future[None]] = []  # woken, but after the round had used its time

    def should_wait(self, now: float) -> bool:
        """Return whether to wait for a later round; if not, count this work toward the current one."""
        if self._queue or not self._start(now):
            return True
        if not self._is_scheduled:
            self._schedule()
        return False

    async def wait(self) -> None:
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
            self.round_s += (self._ticks() - self._started_at - self.round_s) * _ROUND_WEIGHT
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


WAIT_S_MAX: Final = 0.2
CONGESTED_AFTER_S: Final = 0.025
BURST_S_MAX: Final = 1.0  # Without congestion, allow a longer burst.
IN_FLIGHT_MIN: Final = 16
IN_FLIGHT_MAX: Final = 1024
_WORK_WEIGHT: Final = 1 / 64
_FLUSHES: Final = 2  # the one that a request just missed, and its own
_ROUNDS: Final = 4  # of the event loop, from the body to the reply


class Slot:
    """A request in flight: its organization, its start, and the work it took."""

    __slots__ = ("entered_at", "org_id", "started_at", "work_s")

    org_id: str
    entered_at: float
    started_at: float  # later than `entered_at` if it had to wait for the event loop
    work_s: float | None

    def __init__(self, org_id: str) -> None:
        self.org_id = org_id
        self.work_s = None


class Admission:
    """Count requests in flight by organization. Used from one event loop."""

    def __init__(
        self,
        flush_s: Callable[[], float],
        round_s: Callable[[], float],
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush_s = flush_s
        self.round_s = round_s
        self.ticks = ticks
        self._in_flight: dict[str, int] = {}
        self.total = 0  # in flight
        self.limit = IN_FLIGHT_MAX  # how many requests may be in flight now
        self._work_s = 0.0

    def is_full(self, org_id: str) -> bool:
        if self.total < self.limit:
            return False
        if self.total >= 2 * self.limit:
            return True
        return 2 * self._in_flight.get(org_id, 0) >= max(self._in_flight.values())

    def enter(self, slot: Slot) -> None:
        """Start counting a request. Every `enter` needs a `leave`."""
        org_id = slot.org_id
        self._in_flight[org_id] = self._in_flight.get(org_id, 0) + 1
        self.total += 1
        slot.entered_at = slot.started_at = self.ticks()

    def record_work(self, slot: Slot, remaining_s: float = 0.0) -> None:
        """Record that the request held the event loop until now, and how long other threads will work on it."""
        slot.work_s = self.ticks() - slot.started_at + remaining_s

    def leave(self, slot: Slot) -> None:
        """Stop counting a request, and adapt the limit to it."""
        now = self.ticks()
        others = self._in_flight[slot.org_id] - 1
        if others:
            self._in_flight[slot.org_id] = others
        else:
            del self._in_flight[slot.org_id]
        self.total -= 1
        # Do not measure the time between completions: refusals lengthen it, and the limit would never recover.
        work_s = now - slot.started_at if slot.work_s is None else slot.work_s
        self._work_s += (work_s - self._work_s) * _WORK_WEIGHT
        if now - slot.entered_at > CONGESTED_AFTER_S and self._is_congested(now - slot.entered_at):
            self.limit = limit_at(self._work_s, WAIT_S_MAX)
        elif self.limit < IN_FLIGHT_MAX or self._work_s * IN_FLIGHT_MAX > BURST_S_MAX:
            self.limit = min(self.limit + 1, limit_at(self._work_s, BURST_S_MAX))

    def _is_congested(self, waited_s: float) -> bool:
        """Return whether a request waited in a queue. A flush or a round of the event loop serves many at once."""
        return waited_s - _FLUSHES * self._flush_s() - _ROUNDS * self.round_s() > CONGESTED_AFTER_S


def limit_at(work_s: float, wait_s_max: float) -> int:
    """Return how many requests of `work_s` each may be in flight so that none waits longer than `wait_s_max`."""
    if work_s * IN_FLIGHT_MAX <= wait_s_max:
        return IN_FLIGHT_MAX
    return max(IN_FLIGHT_MIN, int(wait_s_max / work_s))
