"""The threads of reads. Single flight: concurrent requests for the same read share one, in bounded time and number.

A read that reaches its time limit is not abandoned: the engines end it (`stores.cancellation`), which frees its thread.
Organizations share threads and places in the queue: each gets half of both at most, and they take turns. However long
the queue, an organization with no read in flight can queue one: two busy organizations do not shut out a third.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from mauve.overload.fair_share import OwnerSemaphore
from mauve.stores import StoreUnavailableError
from mauve.stores.cancellation import deadline_at

READ_S_MAX: Final = 10.0
IN_FLIGHT_MAX: Final = 64
FIRST_READS_MAX: Final = 256  # the bound if each further read is the only one of its organization


class ReadersBusyError(Exception):
    """Too many reads are in flight: one more would only wait."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    key: Hashable
    organization: str
    read: Callable[[], Any]
    ends_at_s: float  # on the monotonic clock; no caller waits longer
    result: asyncio.Future[Any]


class SingleFlight:
    """The threads of one store. A read continues when its callers are gone: its answer is cached for the next."""

    def __init__(self, name: str, threads: int, limit_s: float = READ_S_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limit_s = limit_s
        self._free = threads
        self._share = max(1, threads // 2)
        self._in_flight: dict[Hashable, Flight] = {}
        self._queues: dict[str, deque[Flight]] = {}  # by organization, in the order of their turns
        self._reads: Counter[str] = Counter()  # in flight, by organization
        self._held: Counter[str] = Counter()  # threads, by organization

    def __len__(self) -> int:
        """Return the number of reads in flight, queued ones included."""
        return len(self._in_flight)

    async def join(self, organization: str, key: Hashable, read: Callable[[], T]) -> T:
        """Return the result of the read with this key; start it unless it is in flight.

        Raise `TimeoutError` if it takes too long, counted from its start, so a caller that joins late does not wait
        the whole limit for a read that hangs. Raise `ReadersBusyError` if there are too many. All reads with one key
        must return the same type.
        """
        self._drop_expired()
        flight = self._in_flight.get(key) or self._begin(organization, key, read)
        done, _ = await asyncio.wait({flight.result}, timeout=max(0.0, flight.ends_at_s - time.monotonic()))
        if not done:
            raise TimeoutError(f"the store did not answer within {self._limit_s:g} s")
        result: T = flight.result.result()
        return result

    def close(self) -> None:
        """Wait for reads that have a thread, and drop the queued ones."""
        self._queues.clear()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, organization: str, key: Hashable, read: Callable[[], Any]) -> Flight:
        reads = self._reads[organization]
        if len(self) >= (IN_FLIGHT_MAX if reads else FIRST_READS_MAX) or reads >= IN_FLIGHT_MAX // 2:
            raise ReadersBusyError(f"{len(self)} reads are in flight, {reads} of this organization")
        ends_at_s = time.monotonic() + self._limit_s
        flight = Flight(key, organization, read, ends_at_s, asyncio.get_running_loop().create_future())
        self._in_flight[key] = flight
        self._reads[organization] += 1
        self._queues.setdefault(organization, deque()).append(flight)
        self._start_queued()
        return flight

    def _start_queued(self) -> None:
        """Give free threads to queued reads: first to the organization that holds fewest, then in turns."""
        self._drop_expired()
        while self._free and self._queues:
            organization = min(self._queues, key=self._held.__getitem__)
            if self._held[organization] >= self._share:
                break
            queue = self._queues.pop(organization)
            flight = queue.popleft()
            if queue:
                self._queues[organization] = queue  # now last in turn
            self._free -= 1
            self._held[organization] += 1
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._threads, _in_time, flight).add_done_callback(partial(self._finish, flight))

    def _drop_expired(self) -> None:
        """Remove queued reads that no caller waits for any more, to make room."""
        now_s = time.monotonic()
        for organization, queue in list(self._queues.items()):
            while queue and queue[0].ends_at_s <= now_s:
                flight = queue.popleft()
                self._forget(flight)
                flight.result.set_exception(TimeoutError("no thread was free in time"))
                flight.result.exception()  # Mark as retrieved, even if every caller is gone.
            if not queue:
                del self._queues[organization]

    def _forget(self, flight: Flight) -> None:
        del self._in_flight[flight.key]
        self._reads -= Counter([flight.organization])  # Drops organizations that have none left.

    def _finish(self, flight: Flight, done: asyncio.Future[Any]) -> None:
        self._forget(flight)
        self._free += 1
        self._held -= Counter([flight.organization])
        if done.cancelled():
            flight.result.cancel()
        elif error := done.exception():
            flight.result.set_exception(error)
            flight.result.exception()  # Mark as retrieved, even if every caller is gone.
        else:
            flight.result.set_result(done.result())
        self._start_queued()


class Admissions:
    """Each organization uses half of the threads at most, so that a flood of one does not hold up the others."""

    def __init__(self, threads: int, limit_s: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="admit-reads")
        self._running = OwnerSemaphore(max(1, threads // 2))
        self._limit_s = limit_s

    async def run(self, organization: str, decide: Callable[[], T]) -> T:
        """Run this in a thread and return its result; raise `StoreUnavailableError` if that takes too long."""
        try:
            async with asyncio.timeout(self._limit_s), self._running.acquired(organization, self._limit_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, decide)
        except TimeoutError:
            raise StoreUnavailableError(f"it was not decided within {self._limit_s:g} s whether to read") from None

    def close(self) -> None:
        """Wait for what has a thread, and drop the rest."""
        self._threads.shutdown(cancel_futures=True)


def _in_time(flight: Flight) -> Any:  # noqa: ANN401 - the result of any read
    with deadline_at(flight.ends_at_s):
        return flight.read()
