"""Wait for a change, in a thread or in an event loop.

The waiting operation is a generator: it yields the maximum wait in seconds, and returns its result.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import Callable

Steps = Generator[float, None, bool]
Signal = queue.SimpleQueue  # of nothing: a wait ends when there is anything


def is_owned(lock: threading.RLock) -> bool:
    """Return whether this thread holds the lock, as `threading.Condition` asks."""
    return bool(lock._is_owned())  # type: ignore[attr-defined] # noqa: SLF001


class Clock:
    """The time, and waiting."""

    def now_s(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, signal: Signal[None], timeout_s: float) -> None:
        with suppress(queue.Empty):
            signal.get(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))


class Waiters:
    """The callbacks to notify of a change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: list[Callable[[], object]] = []

    def notify(self) -> None:
        for waiter in tuple(self._waiters):
            with suppress(RuntimeError):  # The waiter's event loop has ended.
                waiter()

    def clear(self) -> None:
        self._waiters.clear()

    def wait_for(self, steps: Steps) -> bool:
        """Run the steps, blocking in between."""
        signal: Signal[None] = queue.SimpleQueue()
        waiter = partial(signal.put, None)
        self._waiters.append(waiter)
        try:
            while True:
                self._clock.wait(signal, next(steps))
        except StopIteration as stop:
            return bool(stop.value)
        finally:
            self._leave(waiter, steps)

    async def wait_for_async(self, steps: Steps) -> bool:
        """Run the steps, awaiting in between: no thread waits for another."""
        changed = asyncio.Event()
        waiter = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        self._waiters.append(waiter)
        try:
            while True:
                changed.clear()
                timeout_s = next(steps)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(timeout_s, threading.TIMEOUT_MAX))
        except StopIteration as stop:
            return bool(stop.value)
        finally:
            self._leave(waiter, steps)

    def _leave(self, waiter: Callable[[], object], steps: Steps) -> None:
        steps.close()
        with suppress(ValueError):  # in a child after a fork
            self._waiters.remove(waiter)
