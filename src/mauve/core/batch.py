"""How a batch of accepted events is written down: a small header, then the bytes that came."""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<BBBHQ")  # format, lengths of project and organization, count, received_at in ms
_FORMAT: Final = 1
HEADER_BYTES_MAX: Final = _HEADER.size + 2 * 255 + 1  # With the first byte of the items: enough to tell what it is.


class Batch(NamedTuple):
    project: str
    org_id: str
    received_at: int
    event_count: int
    items: bytes  # one JSON object, or an array of them


class MalformedBatchError(Exception):
    """The bytes are not a batch of a format that this release knows."""


def packed_header(project: str, org_id: str, received_at: int, event_count: int) -> bytes:
    """Return what stands before the items."""
    project_size, org_size, names = _packed_names(project, org_id)
    return _HEADER.pack(_FORMAT, project_size, org_size, event_count, received_at) + names


@lru_cache(maxsize=1024)
def _packed_names(project: str, org_id: str) -> tuple[int, int, bytes]:
    project_bytes, org_bytes = project.encode(), org_id.encode()
    return len(project_bytes), len(org_bytes), project_bytes + org_bytes


def unpacked(record: bytes) -> Batch:
    if len(record) < _HEADER.size:
        raise MalformedBatchError("shorter than a header")
    format_, project_size, org_size, event_count, received_at = _HEADER.unpack_from(record)
    if format_ != _FORMAT:
        raise MalformedBatchError(f"format {format_} is not known")
    project_end = _HEADER.size + project_size
    org_end = project_end + org_size
    if len(record) <= org_end:
        raise MalformedBatchError("no items")
    try:
        project, org_id = record[_HEADER.size : project_end].decode(), record[project_end:org_end].decode()
    except UnicodeDecodeError:
        raise MalformedBatchError("names are not UTF-8") from None
    return Batch(project, org_id, received_at, event_count, record[org_end:])
