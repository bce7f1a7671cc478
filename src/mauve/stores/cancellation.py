"""Giving up on a change: either it is cancelled or it is committed, never both.

Whoever waits for a change may lose patience just when a thread is about to commit it. The first of the two to say
so decides: a cancelled change is undone, and one that is being committed is waited for.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from mauve.stores import StoreUnavailableError


class CancelledError(StoreUnavailableError):
    """The caller has given up; nothing was applied."""


class Cancellation:
    """What one caller and the thread that works for it share."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._is_cancelled = False
        self._is_committing = False
        self.has_committed = False

    def cancel(self) -> bool:
        """Give up; False if it is too late for that: a transaction is being committed, or was."""
        with self._deciding:
            self._is_cancelled = not self._is_committing
            return self._is_cancelled

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Let a transaction commit in the block, unless the caller has given up."""
        with self._deciding:
            if self._is_cancelled:
                raise CancelledError("nobody waits for this change any more: it is undone")
            self._is_committing = True
        yield
        self.has_committed = True

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Ask this cancellation before each commit that this thread makes in the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: Final[ContextVar[Cancellation | None]] = ContextVar("cancellation", default=None)


def current_cancellation() -> Cancellation:
    """Return what guards this thread's changes; where nothing does, one that nobody cancels."""
    return _current.get() or Cancellation()


_ends_at_s: Final = ContextVar("ends_at_s", default=math.inf)  # of the monotonic clock


@contextmanager
def deadline_at(ends_at_s: float) -> Iterator[None]:
    """Have every engine end its work for this thread at a moment of the monotonic clock."""
    token = _ends_at_s.set(ends_at_s)
    try:
        yield
    finally:
        _ends_at_s.reset(token)


def seconds_left() -> float:
    """Return how long a read may still take: nothing or less if its time is over, infinity if it has no limit."""
    return _ends_at_s.get() - time.monotonic()
