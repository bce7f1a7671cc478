"""Measure the unloaded part of a stream without reading all of it.

Frames follow one another without gaps, so a block as long as the largest frame holds the start of one, up to the last
frame. That allows bisecting a segment; headers are recognized by the segment's mark, and payloads are not checked.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mauve.stores.disk import Disk
from mauve.stores.log.files.segments import (
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Segment,
    SegmentFile,
    decode_header,
    frame_bytes,
    open_segment,
)

_BLOCK_BYTES: Final = frame_bytes(PAYLOAD_BYTES_MAX)


class _Head(NamedTuple):
    number: int
    offset: int
    end: int


def waiting_bytes(disk: Disk, directory: Path, segments: Sequence[Segment], after: int, offset: int = 0) -> int:
    """Return the size of the frames numbered above `after`, in these segments of a stream, oldest first.

    `offset` is a position in the first segment before all of them. Segments between the first and the newest count in
    full, so that the cost does not grow with their number.
    """
    if not segments:
        return 0
    first, between, newest = segments[0], segments[1:-1], segments[1:][-1:]
    waiting = _bytes_above(disk, directory, first, after, offset)
    waiting += sum(disk.size(directory / segment.name) for segment in between)
    return waiting + sum(_bytes_above(disk, directory, segment, after, 0) for segment in newest)


def _bytes_above(disk: Disk, directory: Path, segment: Segment, after: int, offset: int) -> int:
    size = disk.size(directory / segment.name)
    try:
        with open_segment(disk, directory, segment) as file:
            return _Blocks(file, segment, size, offset).bytes_above(after)
    except FileNotFoundError:
        return 0  # Already loaded and recycled.


class _Blocks:
    """A segment in blocks of equal length, starting at the offset of a frame."""

    def __init__(self, file: SegmentFile, segment: Segment, size: int, offset: int) -> None:
        self._file = file
        self._mark = segment.mark
        self._offset = offset
        self._count = max(0, size - offset) // _BLOCK_BYTES + 1

    def bytes_above(self, after: int) -> int:
        if self._head_at(self._offset) is None:
            return 0  # The usual case: everything is loaded.
        last = self._last_head(self._last_block(lambda head: head is not None))
        if last is None or last.number <= after:
            return 0
        block = self._last_block(lambda head: head is not None and head.number <= after)
        head = self._first_head(block)
        while head is not None and head.number <= after:
            head = self._head_at(head.end)
        return last.end - (last.offset if head is None else head.offset)

    def _last_block(self, is_before: Callable[[_Head | None], bool]) -> int:
        """Return the last block whose first frame is before the target."""
        low, high = 0, self._count
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_before(self._first_head(middle)) else (low, middle)
        return low

    def _first_head(self, block: int) -> _Head | None:
        start = self._offset + block * _BLOCK_BYTES
        found = self._file.bytes_at(start, _BLOCK_BYTES).find(self._mark)
        return None if found < 0 else self._head_at(start + found)

    def _last_head(self, block: int) -> _Head | None:
        start = self._offset + block * _BLOCK_BYTES
        found = self._file.bytes_at(start, _BLOCK_BYTES).rfind(self._mark)
        return None if found < 0 else self._head_at(start + found)

    def _head_at(self, offset: int) -> _Head | None:
        raw = self._file.bytes_at(offset, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        mark, number, length = decode_header(raw)
        if mark != self._mark or length > PAYLOAD_BYTES_MAX:
            return None
        return _Head(number, offset, offset + frame_bytes(length))
