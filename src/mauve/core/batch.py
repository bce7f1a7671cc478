"""The stored form of a batch of accepted events: a small header, then the bytes as received."""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

# format, lengths of project and organization, count, received_at in ms, arrived_at in us
_HEADER: Final = struct.Struct("<BBBHQQ")
_FORMAT: Final = 1
_FORMAT_BYTE: Final = bytes([_FORMAT])
HEADER_BYTES_MAX: Final = _HEADER.size + 2 * 255 + 1  # plus the first byte of the items: enough to identify a batch


class Batch(NamedTuple):
    """The events of one request.

    `received_at` (ms) is when the request began; event times are relative to it. `arrived_at` (us) is when the whole
    request had been read and was about to be made durable; it orders batches of different streams.
    """

    project: str
    org_id: str
    received_at: int
    arrived_at: int
    event_count: int
    items: bytes  # one JSON object, or an array of them


def marked(received_at: int, *, is_publishable: bool) -> int:
    """Return the time of receipt, made odd for a publishable key and even for a server key, within its day.

    So the warehouse's table of counted ids tells which kind of key an id came from.
    """
    return received_at | 1 if is_publishable else received_at & ~1


def is_publishable(received_at: int) -> bool:
    """Return whether events with this marked time of receipt came from a publishable key."""
    return received_at & 1 == 1


class MalformedBatchError(Exception):
    """The bytes are not a batch in a format that this release knows."""


def packed_header(project: str, org_id: str, received_at: int, arrived_at: int, event_count: int) -> bytes:
    project_size, org_size, names = _packed_names(project, org_id)
    return _HEADER.pack(_FORMAT, project_size, org_size, event_count, received_at, arrived_at) + names


@lru_cache(maxsize=1024)
def _packed_names(project: str, org_id: str) -> tuple[int, int, bytes]:
    project_bytes, org_bytes = project.encode(), org_id.encode()
    return len(project_bytes), len(org_bytes), project_bytes + org_bytes


def arrival_of(record: bytes) -> int:
    """Return when a batch arrived (us) without decoding the rest; 0 if it is malformed."""
    if record[:1] == _FORMAT_BYTE and len(record) >= _HEADER.size:
        return int.from_bytes(record[_HEADER.size - 8 : _HEADER.size], "little")
    return 0


def received_at_of(record: bytes) -> int | None:
    """Return when a batch was received (ms) without decoding the rest; None if it is malformed."""
    try:
        return _unpacked_header(record)[3]
    except MalformedBatchError:
        return None


def unpacked(record: bytes) -> Batch:
    project_size, org_size, event_count, received_at, arrived_at = _unpacked_header(record)
    project_end = _HEADER.size + project_size
    org_end = project_end + org_size
    if len(record) <= org_end:
        raise MalformedBatchError("no items")
    try:
        project, org_id = record[_HEADER.size : project_end].decode(), record[project_end:org_end].decode()
    except UnicodeDecodeError:
        raise MalformedBatchError("names are not UTF-8") from None
    return Batch(project, org_id, received_at, arrived_at, event_count, record[org_end:])


def _unpacked_header(record: bytes) -> tuple[int, ...]:
    """Return the fields of the header except the format."""
    if record[:1] != _FORMAT_BYTE:
        raise MalformedBatchError(f"format {record[0]} is unknown" if record else "empty")
    if len(record) < _HEADER.size:
        raise MalformedBatchError("shorter than a header")
    return _HEADER.unpack_from(record)[1:]
