"""Reading a body within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterable
from typing import Final

_DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024
_BODY_TIMEOUT_S: Final = 10.0


class IncompleteBodyError(Exception):
    """The client went away before it had sent the whole body."""


async def read_body(chunks: AsyncIterable[bytes], bytes_max: int) -> bytes | None:
    """Return the body, or None if it is too large, is cut off, or does not arrive in time.

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
                elif size > _DRAIN_BYTES_MAX:
                    break
    except (TimeoutError, IncompleteBodyError):
        return None
    return b"".join(kept) if size <= bytes_max else None
