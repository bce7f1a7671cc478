"""Give up on work: cancel a change before it commits, end a read at its deadline.

A caller may stop waiting just as a thread is about to commit. The first of the two decides: a cancelled change is
rolled back, and the caller waits for one that is already committing. Never both.
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
    """Shared by a caller and the thread that works for it."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._is_cancelled = False
        self._is_committing = False
        self.has_committed = False

    def cancel(self) -> bool:
        """Give up; return False if a transaction is committing or has committed."""
        with self._deciding:
            self._is_cancelled = not self._is_committing
            return self._is_cancelled

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Commit a transaction in the block, unless the caller has given up."""
        with self._deciding:
            if self._is_cancelled:
                raise CancelledError("the caller gave up: the change is rolled back")
            self._is_committing = True
        yield
        self.has_committed = True

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Check this cancellation before every commit of this thread during the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: Final[ContextVar[Cancellation | None]] = ContextVar("cancellation", default=None)


def current_cancellation() -> Cancellation:
    """Return the cancellation that guards this thread, or one that is never cancelled."""
    return _current.get() or Cancellation()


_ends_at_s: Final = ContextVar("ends_at_s", default=math.inf)  # on the monotonic clock


@contextmanager
def deadline_at(ends_at_s: float) -> Iterator[None]:
    """Make every engine end this thread's work at a time of the monotonic clock."""
    token = _ends_at_s.set(ends_at_s)
    try:
        yield
    finally:
        _ends_at_s.reset(token)


def seconds_left() -> float:
    """Return the time left for a read: zero or less if it has run out, infinity if there is no deadline."""
    return _ends_at_s.get() - time.monotonic()
