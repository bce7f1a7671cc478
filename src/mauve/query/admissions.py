"""Threads in which it is decided whether a read may be made: the catalog and the read meter may be slow or far away."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mauve.overload.fair_share import Turns
from mauve.stores import StoreUnavailableError

T = TypeVar("T")


class Admissions:
    """Each organization uses half of the threads at most, so that a flood of one does not hold up the others."""

    def __init__(self, threads: int, limit_s: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="admit-reads")
        self._turns = Turns(max(1, threads // 2))
        self._limit_s = limit_s

    async def run(self, organization: str, decide: Callable[[], T]) -> T:
        """Run this in a thread and return its result; raise `StoreUnavailableError` if that takes too long."""
        try:
            async with asyncio.timeout(self._limit_s), self._turns.taken(organization, self._limit_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, decide)
        except TimeoutError:
            raise StoreUnavailableError(f"it was not decided within {self._limit_s:g} s whether to read") from None

    def close(self) -> None:
        """Wait for what has a thread, and drop the rest."""
        self._threads.shutdown(cancel_futures=True)
