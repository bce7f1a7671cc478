"""Readings under way: the same one is made once for all who wait for it, in bounded time and number."""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

READ_S_MAX: Final = 10.0
_WAITING_MAX: Final = 64


class CrowdedError(Exception):
    """So many readings are under way that one more would only wait."""


T = TypeVar("T")


class Flight(NamedTuple):
    work: asyncio.Future[Any]
    ends_at_s: float  # of the monotonic clock: nobody waits longer


class Flights:
    """Some threads for one store. A reading goes on when those who asked are gone: its answer is kept for the next."""

    def __init__(self, name: str, threads: int, limit_s: float = READ_S_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limit_s = limit_s
        self._under_way: dict[Hashable, Flight] = {}

    def __len__(self) -> int:
        """Return how many readings are under way."""
        return len(self._under_way)

    async def join(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return what the reading under this key returns; begin it, unless it is under way.

        Raise `TimeoutError` when it takes too long, counted from its beginning: who comes late to one that hangs
        does not wait in vain. A key stands for one kind of reading. Raise `CrowdedError` when there are too many.
        """
        flight = self._under_way.get(key) or self._begin(key, read)
        done, _ = await asyncio.wait({flight.work}, timeout=max(0.0, flight.ends_at_s - time.monotonic()))
        if not done:
            raise TimeoutError(f"the store did not answer within {self._limit_s:g} s")
        read_by_now: T = flight.work.result()
        return read_by_now

    def close(self) -> None:
        """Wait for what is under way, and drop what has not begun."""
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, key: Hashable, read: Callable[[], Any]) -> Flight:
        if len(self) >= _WAITING_MAX:
            raise CrowdedError(f"{_WAITING_MAX} readings are under way")
        ends_at_s = time.monotonic() + self._limit_s
        work = asyncio.get_running_loop().run_in_executor(self._threads, _unless_too_late, read, ends_at_s)
        flight = self._under_way[key] = Flight(work, ends_at_s)
        work.add_done_callback(lambda done: self._end(key, done))
        return flight

    def _end(self, key: Hashable, work: asyncio.Future[Any]) -> None:
        del self._under_way[key]
        if not work.cancelled():
            work.exception()  # Seen, even if everybody who waited has left.


def _unless_too_late(read: Callable[[], T], ends_at_s: float) -> T:
    if time.monotonic() >= ends_at_s:
        raise TimeoutError("no thread was free in time")  # Nobody waits any more.
    return read()
