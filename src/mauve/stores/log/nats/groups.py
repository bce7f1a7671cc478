"""A group of log records, stored in one message.

A record's number combines its message's sequence and its place in the group. The content is compressed as a whole, with
a checksum.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

import zstandard

from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogRecord

RECORDS_MAX: Final = 64
RECORD_BYTES_MAX: Final = 2 * 2**20
GROUP_BYTES_MAX: Final = 2**20  # A larger record forms its own group. Compressing must not block the event loop.
FORMAT: Final = "1"  # of written messages; the previous release must be able to read it
FORMATS_READ: Final = frozenset({"1"})
FORMAT_HEADER: Final = "Mauve-Format"

_CONTENT_BYTES_MAX: Final = RECORD_BYTES_MAX + GROUP_BYTES_MAX + 4 * (RECORDS_MAX + 1)
_compressor: Final = zstandard.ZstdCompressor(level=1, write_checksum=True)
_decompressor: Final = zstandard.ZstdDecompressor()


class DamagedGroupError(Exception):
    """The message does not hold a group of records."""


class NewerFormatError(StoreUnavailableError):
    """The message was written by a newer release. Keep it until such a release reads it."""


def sequence_of(number: int) -> int:
    """Return the sequence of the message that holds a record."""
    return number // RECORDS_MAX


def first_number(sequence: int) -> int:
    return sequence * RECORDS_MAX


def packed(records: Sequence[Sequence[bytes]]) -> bytes:
    """Return the message for records, each given in parts."""
    lengths = [sum(map(len, parts)) for parts in records]
    head = struct.pack(f"<{len(lengths) + 1}I", len(lengths), *lengths)
    return _compressor.compress(head + b"".join(part for parts in records for part in parts))


def unpacked(sequence: int, message: bytes, format_: str | None = FORMAT) -> list[LogRecord]:
    """Return the records of a message. Every release names its format, so a message without one is not ours."""
    if format_ is None:
        raise DamagedGroupError("it names no format")
    if format_ not in FORMATS_READ:
        raise NewerFormatError(f"its format is {format_}: written by a newer release: upgrade this machine")
    try:
        content = _content_of(message)
        (count,) = struct.unpack_from("<I", content)
        lengths = struct.unpack_from(f"<{min(count, RECORDS_MAX)}I", content, 4)
    except (zstandard.ZstdError, struct.error) as error:
        raise DamagedGroupError(str(error)) from error
    ends = list(accumulate(lengths, initial=4 + 4 * count))
    if not 0 < count <= RECORDS_MAX or ends[-1] != len(content):
        raise DamagedGroupError("its lengths do not match")
    first = first_number(sequence)
    return [LogRecord(first + place, content[start:end]) for place, (start, end) in enumerate(pairwise(ends))]


def _content_of(message: bytes) -> bytes:
    if zstandard.frame_content_size(message) > _CONTENT_BYTES_MAX:
        raise DamagedGroupError("it is too large")
    return _decompressor.decompress(message, max_output_size=_CONTENT_BYTES_MAX)
