"""Readings under way: the same one is made once for all who wait for it, in bounded time and number.

A reading that reaches its limit is not left to itself: the engines end it (`stores.time_limit`), freeing its thread.
Threads and places in the line are shared: an organization has half of each at most.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from mauve.stores.time_limit import ending_at

READ_S_MAX: Final = 10.0
WAITING_MAX: Final = 64


class CrowdedError(Exception):
    """So many readings are under way that one more would only wait."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    key: Hashable
    organization: str
    read: Callable[[], Any]
    ends_at_s: float  # of the monotonic clock: nobody waits longer
    work: asyncio.Future[Any]


class Flights:
    """Some threads for one store. A reading goes on when those who asked are gone: its answer is kept for the next."""

    def __init__(self, name: str, threads: int, limit_s: float = READ_S_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limit_s = limit_s
        self._free = threads
        self._share = max(1, threads // 2)
        self._under_way: dict[Hashable, Flight] = {}
        self._waiting: list[Flight] = []
        self._asked: Counter[str] = Counter()  # readings under way, by organization
        self._held: Counter[str] = Counter()  # threads, by organization

    def __len__(self) -> int:
        """Return how many readings are under way."""
        return len(self._under_way)

    async def join(self, organization: str, key: Hashable, read: Callable[[], T]) -> T:
        """Return what the reading under this key returns; begin it, unless it is under way.

        Raise `TimeoutError` when it takes too long, counted from its beginning: who comes late to one that hangs
        does not wait in vain. A key stands for one kind of reading. Raise `CrowdedError` when there are too many.
        """
        flight = self._under_way.get(key) or self._begin(organization, key, read)
        done, _ = await asyncio.wait({flight.work}, timeout=max(0.0, flight.ends_at_s - time.monotonic()))
        if not done:
            raise TimeoutError(f"the store did not answer within {self._limit_s:g} s")
        read_by_now: T = flight.work.result()
        return read_by_now

    def close(self) -> None:
        """Wait for what is under way, and drop what has not begun."""
        self._waiting.clear()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, organization: str, key: Hashable, read: Callable[[], Any]) -> Flight:
        if len(self) >= WAITING_MAX or self._asked[organization] >= WAITING_MAX // 2:
            raise CrowdedError(f"{len(self)} readings are under way, {self._asked[organization]} of this organization")
        ends_at_s = time.monotonic() + self._limit_s
        flight = Flight(key, organization, read, ends_at_s, asyncio.get_running_loop().create_future())
        self._under_way[key] = flight
        self._asked[organization] += 1
        self._waiting.append(flight)
        self._take_off()
        return flight

    def _take_off(self) -> None:
        """Give free threads to those who wait, in their order, and to no organization more than its share."""
        for flight in list(self._waiting):
            if self._free and self._held[flight.organization] < self._share:
                self._waiting.remove(flight)
                self._free -= 1
                self._held[flight.organization] += 1
                loop = asyncio.get_running_loop()
                loop.run_in_executor(self._threads, _in_time, flight).add_done_callback(partial(self._land, flight))

    def _land(self, flight: Flight, done: asyncio.Future[Any]) -> None:
        del self._under_way[flight.key]
        self._free += 1
        self._held -= Counter([flight.organization])  # Those who have none left are forgotten.
        self._asked -= Counter([flight.organization])
        if done.cancelled():
            flight.work.cancel()
        elif error := done.exception():
            flight.work.set_exception(error)
            flight.work.exception()  # Seen, even if everybody who waited has left.
        else:
            flight.work.set_result(done.result())
        self._take_off()


def _in_time(flight: Flight) -> Any:  # noqa: ANN401 - whatever is read
    if time.monotonic() >= flight.ends_at_s:
        raise TimeoutError("no thread was free in time")  # Nobody waits any more.
    with ending_at(flight.ends_at_s):
        return flight.read()
