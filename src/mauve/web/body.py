"""Reading a body within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterable
from typing import Final

_BODY_TIMEOUT_S: Final = 10.0
DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024


class BodyTooLargeError(Exception):
    """The body is larger than the plane takes."""


class IncompleteBodyError(Exception):
    """The body was cut off, or did not arrive in time."""


async def read_body(chunks: AsyncIterable[bytes], bytes_max: int) -> bytes:
    """Return the body, or raise if it is too large or incomplete.

    A body that is too large is still read, within bounds and without keeping it: a client that is writing would
    otherwise see its connection reset instead of our answer.
    """
    kept: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in chunks:
                size += len(chunk)
                if size <= bytes_max:
                    kept.append(chunk)
                elif size > DRAIN_BYTES_MAX:
                    break
    except TimeoutError:
        raise IncompleteBodyError from None
    if size > bytes_max:
        raise BodyTooLargeError
    return b"".join(kept)


def declared_size(content_length: str | None) -> int | None:
    """Return the size that a Content-Length header declares."""
    return int(content_length) if content_length is not None and content_length.isdecimal() else None
