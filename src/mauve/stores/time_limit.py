"""The moment at which a read must end. The thread that reads knows it, and so does every engine that it asks."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_ends_at_s: Final = ContextVar("ends_at_s", default=math.inf)  # of the monotonic clock


@contextmanager
def ending_at(ends_at_s: float) -> Iterator[None]:
    """Have every engine end its work for this thread at a moment of the monotonic clock."""
    token = _ends_at_s.set(ends_at_s)
    try:
        yield
    finally:
        _ends_at_s.reset(token)


def seconds_left() -> float:
    """Return how long a read may still take: nothing or less if its time is over, infinity if it has no limit."""
    return _ends_at_s.get() - time.monotonic()
