"""Reading a body within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Final

from mauve.core.problems import Busy
from mauve.web.heads import LENGTH_DIGITS_MAX
from mauve.web.pace import LOOK_EVERY_S, Pace

DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024


class BodyTooLargeError(Exception):
    """The body is larger than the plane takes."""


class IncompleteBodyError(Exception):
    """The body was cut off, or did not arrive in time."""


def never() -> bool:
    """Say that a body is in nobody's way, because it holds nothing that others wait for."""
    return False


async def read_body(chunks: AsyncIterable[bytes], bytes_max: int, is_in_the_way: Callable[[], bool] = never) -> bytes:
    """Return the body, or raise if it is too large, incomplete, or comes slowly and is in the way.

    A body that is too large is still read, within bounds and without keeping it: a client that is writing would
    otherwise see its connection reset instead of our answer.
    """
    kept: list[bytes] = []
    watch = _Watch(is_in_the_way)
    try:
        async with watch.limit:
            watch.look_later()
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
    """Looks once a second at how a body comes along, and ends the waiting for one that is too slow."""

    def __init__(self, is_in_the_way: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._loop.time())
        self._is_in_the_way = is_in_the_way
        self.limit = asyncio.timeout(None)
        self.reason: Exception = IncompleteBodyError()
        self.size = 0

    def look_later(self) -> None:
        self._next = self._loop.call_later(LOOK_EVERY_S, self._look)

    def end(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        now_s = self._loop.time()
        is_late = self._pace.is_late(now_s, self.size)
        if not is_late and not (self._pace.is_slow(now_s) and self._is_in_the_way()):
            self.look_later()
            return
        if not is_late:
            self.reason = Busy()
        self.limit.reschedule(now_s)


def declared_size(content_length: str | None) -> int | None:
    """Return the size that a Content-Length header declares; None if it declares none that can be."""
    if content_length is None or len(content_length) > LENGTH_DIGITS_MAX or not content_length.isdecimal():
        return None
    return int(content_length)
