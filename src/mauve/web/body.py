"""Read a body within bounds of size and time.

A sender must keep a pace rather than meet a deadline: a megabyte over a poor mobile connection takes a minute or two
and is welcome, a client that only pretends to send is not.
"""

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Final

from mauve.core.problems import Busy
from mauve.web.head_rules import LENGTH_DIGITS_MAX

DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024
GRACE_S: Final = 10.0
BYTES_PER_S: Final = 8 * 1024
TOTAL_S: Final = 150.0  # A megabyte at that pace takes 128 s.
_CHECK_EVERY_S: Final = 1.0


class BodyTooLargeError(Exception):
    """The body is larger than the plane accepts."""


class IncompleteBodyError(Exception):
    """The body was cut off, or did not arrive in time."""


def never() -> bool:
    """Keep waiting for a slow body: it holds nothing that other requests need."""
    return False


class Pace:
    """The pace of one body: it may pause for the grace period, and each byte buys time, up to one grace period ahead.

    So a burst at the beginning does not entitle a sender to pause for minutes. The clock is an argument, in seconds
    from any origin.
    """

    __slots__ = ("_began_s", "_size", "_until_s")

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._until_s = now_s + GRACE_S
        self._size = 0

    def is_late(self, now_s: float, size: int) -> bool:
        """Return whether to give up, by the number of bytes received so far. Called about once a second."""
        bought_s = (size - self._size) / BYTES_PER_S
        self._size = size
        self._until_s = min(self._until_s + bought_s, now_s + GRACE_S)
        return now_s > min(self._until_s, self._began_s + TOTAL_S)

    def is_slow(self, now_s: float) -> bool:
        """Return whether to drop the body as soon as other requests need the room that it holds."""
        return now_s > self._began_s + GRACE_S


async def read_body(chunks: AsyncIterable[bytes], bytes_max: int, should_evict: Callable[[], bool] = never) -> bytes:
    """Return the body, or raise if it is too large, incomplete, or slow while its room is needed.

    Read on past `bytes_max`, within bounds and without keeping the bytes: a client that is still writing would
    otherwise see its connection reset instead of our answer.
    """
    kept: list[bytes] = []
    watch = _Watch(should_evict)
    try:
        async with watch.limit:
            watch.check_later()
            async for chunk in chunks:
                watch.size += len(chunk)
                if watch.size <= bytes_max:
                    kept.append(chunk)
                elif watch.size > DRAIN_BYTES_MAX:
                    break
    except TimeoutError:
        raise watch.reason from None
    finally:
        watch.end()
    if watch.size > bytes_max:
        raise BodyTooLargeError
    return b"".join(kept)


class _Watch:
    """Checks a body's progress once a second, and stops waiting for one that is too slow."""

    def __init__(self, should_evict: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._loop.time())
        self._is_room_needed = should_evict
        self.limit = asyncio.timeout(None)
        self.reason: Exception = IncompleteBodyError()
        self.size = 0

    def check_later(self) -> None:
        self._next = self._loop.call_later(_CHECK_EVERY_S, self._check)

    def end(self) -> None:
        self._next.cancel()

    def _check(self) -> None:
        now_s = self._loop.time()
        is_late = self._pace.is_late(now_s, self.size)
        if not is_late and not (self._pace.is_slow(now_s) and self._is_room_needed()):
            self.check_later()
            return
        if not is_late:
            self.reason = Busy()
        self.limit.reschedule(now_s)


def declared_size(content_length: str | None) -> int | None:
    """Return the size that a Content-Length header declares; None if there is no valid one."""
    if content_length is None or len(content_length) > LENGTH_DIGITS_MAX or not content_length.isdecimal():
        return None
    return int(content_length)
