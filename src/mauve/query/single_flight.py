"""Readings under way: the same one is made once for all who wait for it, in bounded time and number.

A reading that reaches its limit is not left to itself: the engines end it (`stores.cancellation`), freeing its thread.
Threads and places in the line are shared: an organization has half of each at most, and they take turns. However long
the line is, there is a place for one reading of an organization that has none: two that are busy shut nobody out.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from mauve.stores.cancellation import deadline_at

READ_S_MAX: Final = 10.0
WAITING_MAX: Final = 64
FIRST_ONES_MAX: Final = 256  # so many in all, if each more is the only one of its organization


class ReadersBusyError(Exception):
    """So many readings are under way that one more would only wait."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    key: Hashable
    organization: str
    read: Callable[[], Any]
    ends_at_s: float  # of the monotonic clock: nobody waits longer
    work: asyncio.Future[Any]


class SingleFlight:
    """Some threads for one store. A reading goes on when those who asked are gone: its answer is kept for the next."""

    def __init__(self, name: str, threads: int, limit_s: float = READ_S_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limit_s = limit_s
        self._free = threads
        self._share = max(1, threads // 2)
        self._under_way: dict[Hashable, Flight] = {}
        self._lines: dict[str, deque[Flight]] = {}  # who waits, by organization, in the order of their turns
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
        self._drop_late()
        flight = self._under_way.get(key) or self._begin(organization, key, read)
        done, _ = await asyncio.wait({flight.work}, timeout=max(0.0, flight.ends_at_s - time.monotonic()))
        if not done:
            raise TimeoutError(f"the store did not answer within {self._limit_s:g} s")
        read_by_now: T = flight.work.result()
        return read_by_now

    def close(self) -> None:
        """Wait for what is under way, and drop what has not begun."""
        self._lines.clear()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, organization: str, key: Hashable, read: Callable[[], Any]) -> Flight:
        asked = self._asked[organization]
        if len(self) >= (WAITING_MAX if asked else FIRST_ONES_MAX) or asked >= WAITING_MAX // 2:
            raise ReadersBusyError(f"{len(self)} readings are under way, {asked} of this organization")
        ends_at_s = time.monotonic() + self._limit_s
        flight = Flight(key, organization, read, ends_at_s, asyncio.get_running_loop().create_future())
        self._under_way[key] = flight
        self._asked[organization] += 1
        self._lines.setdefault(organization, deque()).append(flight)
        self._take_off()
        return flight

    def _take_off(self) -> None:
        """Give free threads to those who wait: first to an organization that holds fewest, then by turns."""
        self._drop_late()
        while self._free and self._lines:
            organization = min(self._lines, key=self._held.__getitem__)
            if self._held[organization] >= self._share:
                break
            line = self._lines.pop(organization)
            flight = line.popleft()
            if line:
                self._lines[organization] = line  # behind the others
            self._free -= 1
            self._held[organization] += 1
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._threads, _with_deadline, flight).add_done_callback(partial(self._land, flight))

    def _drop_late(self) -> None:
        """Take those out of the line for whom nobody waits any more: they keep no place from others."""
        now_s = time.monotonic()
        for organization, line in list(self._lines.items()):
            while line and line[0].ends_at_s <= now_s:
                flight = line.popleft()
                self._leave(flight)
                flight.work.set_exception(TimeoutError("no thread was free in time"))
                flight.work.exception()  # Seen, even if everybody who waited has left.
            if not line:
                del self._lines[organization]

    def _leave(self, flight: Flight) -> None:
        del self._under_way[flight.key]
        self._asked -= Counter([flight.organization])  # Those who have none left are forgotten.

    def _land(self, flight: Flight, done: asyncio.Future[Any]) -> None:
        self._leave(flight)
        self._free += 1
        self._held -= Counter([flight.organization])
        if done.cancelled():
            flight.work.cancel()
        elif error := done.exception():
            flight.work.set_exception(error)
            flight.work.exception()  # Seen, even if everybody who waited has left.
        else:
            flight.work.set_result(done.result())
        self._take_off()


def _with_deadline(flight: Flight) -> Any:  # noqa: ANN401 - whatever is read
    with deadline_at(flight.ends_at_s):
        return flight.read()
