"""Doing something in a thread and in bounded time, so that what is given up on is not done."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from mauve.stores.cancellation import Cancellation

T = TypeVar("T")


async def done_in_time(threads: Executor, work: Callable[[], T], timeout_s: float, cancellation: Cancellation) -> T:
    """Return what the work returns; raise `TimeoutError` if time runs out first. Then it changes nothing any more.

    Work that has begun to commit is waited for: only the disk can make that long, and no other answer would be true.
    """
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    done, _ = await asyncio.wait({future}, timeout=timeout_s)
    if not done and cancellation.cancel():
        future.cancel()
        raise TimeoutError
    return await future
