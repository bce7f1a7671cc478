"""A frame: one record as stored in a segment.

The header holds the segment's mark, the record's number, the payload's length and a CRC32 over all of these and
the payload. Every segment has a random mark, stored in its name, so neither the remains of an earlier use of the
file nor bytes sent by a client can pass for a frame.
"""

import struct
from collections.abc import Sequence
from typing import Final

from isal.isal_zlib import crc32  # same results as zlib, eight times as fast

MARK_BYTES: Final = 8
ALIGNMENT: Final = 8
PAYLOAD_BYTES_MAX: Final = 2 * 2**20

_FIELDS: Final = struct.Struct("<8sQI")  # mark, number, payload length
_CHECKSUM: Final = struct.Struct("<I")
_HEADER: Final = struct.Struct("<8sQII")
HEADER_BYTES: Final = _HEADER.size
PADDING: Final = tuple(bytes(length) for length in range(ALIGNMENT))


def frame_bytes(length: int) -> int:
    return HEADER_BYTES + length + (-length % ALIGNMENT)


def checksum_of_payload(parts: Sequence[bytes]) -> int:
    checksum = 0
    for part in parts:
        checksum = crc32(part, checksum)
    return checksum


def encode_header(mark: bytes, number: int, length: int, payload_checksum: int) -> bytes:
    """Return the header. The checksum starts with the payload, which is known before its position."""
    return _HEADER.pack(mark, number, length, crc32(_FIELDS.pack(mark, number, length), payload_checksum))


def padding_after(length: int) -> bytes:
    return PADDING[-length % ALIGNMENT]


def decode_header(header: bytes) -> tuple[bytes, int, int]:
    return _FIELDS.unpack_from(header)


def is_intact(header: bytes, payload: bytes) -> bool:
    checksum = crc32(header[: _FIELDS.size], crc32(payload))
    return header[_FIELDS.size :] == _CHECKSUM.pack(checksum)
