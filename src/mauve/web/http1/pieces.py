"""Cuts what has arrived into pieces for the parser, none of which reaches beyond the end of a request.

So it is known to the byte how long a head is, and nothing of the next request is looked at before its turn.
"""

from typing import Final

PIECE_BYTES_MAX: Final = 16 * 1024
END: Final = b"\r\n\r\n"  # of every head, and of every body that comes in chunks
_SEAM_BYTES: Final = len(END) - 1


def end_of_piece(data: bytes | bytearray, start: int, end: int, before: bytes) -> int:
    """Return where the piece that begins at `start` ends; `before` is what `tail` kept of the last one."""
    if before:
        seam = (before + data[start : min(start + _SEAM_BYTES, end)]).find(END)
        if seam >= 0:
            return start + seam + len(END) - len(before)
    end = min(end, start + PIECE_BYTES_MAX)
    found = data.find(END, start, end)
    return end if found < 0 else found + len(END)


def tail(before: bytes, data: bytes | bytearray, start: int, stop: int) -> bytes:
    """Return what an end that is cut in two could begin with."""
    return (before + data[max(start, stop - _SEAM_BYTES) : stop])[-_SEAM_BYTES:]
