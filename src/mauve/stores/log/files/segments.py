"""A stream's segments: their names, their frames, and the pool of files to recycle.

A frame is one record as stored. Its header holds the segment's mark, the record's number, the payload's length and a
CRC32 over all of these and the payload. Every segment has a random mark, stored in its name, so neither the remains of
an earlier use of the file nor bytes sent by a client can pass for a frame.
"""

import os
import re
import secrets
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from isal.isal_zlib import crc32  # same results as zlib, eight times as fast

from mauve.stores.disk import Disk, write_all
from mauve.stores.log import RECORD_NUMBER_MAX, STREAM_MAX

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


# Numbers that a stopped writer may have used without reporting them are skipped, never reused.
NUMBER_GAP: Final = 2**20
POOL_SEGMENTS_MAX: Final = 8
_SUFFIX: Final = ".segment"
_NAME: Final = re.compile(r"([0-9]{14})-([0-9a-f]{16})\.segment")
_STREAM: Final = re.compile(r"[0-9]{3}")
POOL_FOLDER: Final = "spare"
_NEW_SEGMENT: Final = "new.segment"
_ZEROS: Final = memoryview(bytes(2**20))
_WINDOW_BYTES: Final = 2**20


class Segment(NamedTuple):
    first: int  # the number of its first record
    mark: bytes

    @property
    def name(self) -> str:
        return f"{self.first:014d}-{self.mark.hex()}{_SUFFIX}"


class Frame(NamedTuple):
    number: int
    payload: bytes
    offset: int
    end: int


def segment_from_name(name: str) -> Segment | None:
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > RECORD_NUMBER_MAX:
        return None
    return Segment(int(match[1]), bytes.fromhex(match[2]))


def list_segments(disk: Disk, directory: Path) -> list[Segment]:
    """Return the segments of a stream, oldest first."""
    return sorted(segment for name in disk.names(directory) if (segment := segment_from_name(name)))


def stream_directory(root: Path, stream: int) -> Path:
    return root / f"{stream:03d}"


def list_streams(disk: Disk, root: Path) -> list[int]:
    return sorted(int(name) for name in disk.names(root) if _STREAM.fullmatch(name) and int(name) <= STREAM_MAX)


def make_stream_directory(disk: Disk, root: Path, stream: int) -> Path:
    directory = stream_directory(root, stream)
    disk.make_directory(directory)
    disk.sync_directory(root.parent)
    disk.sync_directory(root)
    return directory


def random_mark() -> bytes:
    return secrets.token_bytes(MARK_BYTES)


class SegmentFile:
    """A segment open for reading. It trusts no byte without a checksum."""

    def __init__(self, disk: Disk, descriptor: int, segment: Segment) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._segment = segment
        self._window = b""
        self._window_offset = 0

    def frame_at(self, offset: int, above: int) -> Frame | None:
        """Return the frame at this offset if it is intact, of this segment and numbered above `above`."""
        raw = self.bytes_at(offset, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        mark, number, length = decode_header(raw)
        if mark != self._segment.mark or length > PAYLOAD_BYTES_MAX:
            return None
        if number <= above or number < self._segment.first:
            return None
        payload = self.bytes_at(offset + HEADER_BYTES, length)
        if len(payload) < length or not is_intact(raw, payload):
            return None
        return Frame(number, payload, offset, offset + frame_bytes(length))

    def frame_after(self, offset: int, above: int, bytes_max: int | None = None) -> Frame | None:
        """Search for the next frame after this offset, skipping bytes that are not a frame."""
        end = None if bytes_max is None else offset + bytes_max
        offset += ALIGNMENT
        while end is None or offset < end:
            window = self.bytes_at(offset, _WINDOW_BYTES)
            for found in _offsets_of(self._segment.mark, window):
                if frame := self.frame_at(offset + found, above):
                    return frame
            if len(window) < _WINDOW_BYTES:
                return None
            offset += _WINDOW_BYTES  # A mark never crosses the boundary: both are aligned.
        return None

    def frames(self, offset: int = 0, above: int = 0) -> Iterator[Frame]:
        """Yield every frame from here to the end, including those after damage."""
        while frame := self.frame_at(offset, above) or self.frame_after(offset, above):
            yield frame
            offset, above = frame.end, frame.number

    def bytes_at(self, offset: int, length: int) -> bytes:
        start = offset - self._window_offset
        if start < 0 or start + length > len(self._window):
            self._window = self._disk.pread(self._descriptor, max(length, _WINDOW_BYTES), offset)
            self._window_offset = offset
            start = 0
        return self._window[start : start + length]

    def sync(self) -> None:
        self._disk.sync(self._descriptor)

    def drop_buffer(self) -> None:
        """Drop the buffered bytes: a writer may have changed them since."""
        self._window = b""


def _offsets_of(mark: bytes, window: bytes) -> Iterator[int]:
    found = window.find(mark)
    while found >= 0:
        if found % ALIGNMENT == 0:
            yield found
        found = window.find(mark, found + 1)


@contextmanager
def open_segment(disk: Disk, directory: Path, segment: Segment) -> Iterator[SegmentFile]:
    descriptor = disk.open(directory / segment.name, os.O_RDONLY)
    try:
        yield SegmentFile(disk, descriptor, segment)
    finally:
        disk.close(descriptor)


def highest_number(disk: Disk, directory: Path) -> int:
    """Return the highest number in use, including records after damage. It is in the newest segment."""
    segments = list_segments(disk, directory)
    if not segments:
        return 0
    with open_segment(disk, directory, segments[-1]) as file:
        return max((frame.number for frame in file.frames()), default=segments[-1].first)


def ends_before(disk: Disk, directory: Path, number: int) -> bool:
    """Return whether a stream's files end before a record they once held: they were lost, or are an old copy."""
    segments = list_segments(disk, directory)
    return not (segments and segments[-1].first >= number) and highest_number(disk, directory) < number


def continue_after(disk: Disk, root: Path, stream: int, number: int) -> None:
    """Begin an empty segment after a record, durably, so that the next writer of the stream continues there."""
    directory = make_stream_directory(disk, root, stream)
    segment = Segment(number + 1, random_mark())
    disk.close(disk.open(directory / segment.name, os.O_WRONLY | os.O_CREAT))
    disk.sync_directory(directory)


def recycle_segments(disk: Disk, directory: Path, segments: list[Segment]) -> None:
    """Remove segments from the stream: a few go to the pool, the others are deleted."""
    folder = directory / POOL_FOLDER
    disk.make_directory(folder)
    pooled = sum(name.endswith(_SUFFIX) for name in disk.names(folder))
    for segment in segments:
        if pooled < POOL_SEGMENTS_MAX:
            disk.rename(directory / segment.name, folder / segment.name)
            pooled += 1
        else:
            disk.unlink(directory / segment.name)
    disk.sync_directory(folder)
    disk.sync_directory(directory)


class SegmentPool:
    """Files of the right size with all blocks written, so that a later sync need not touch metadata."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._folder = directory / POOL_FOLDER
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        disk.make_directory(self._folder)

    def prepare(self) -> None:
        with self._lock:
            if not self._free_segment():
                self._make()

    def take(self, segment: Segment) -> None:
        """Turn a file of the pool into the segment; permanent after `sync_directories`."""
        with self._lock:
            self._disk.rename(self._free_segment() or self._make(), self._directory / segment.name)

    def sync_directories(self) -> None:
        self._disk.sync_directory(self._directory)
        self._disk.sync_directory(self._folder)

    def _free_segment(self) -> Path | None:
        for name in sorted(self._disk.names(self._folder)):
            free = self._folder / name
            if not name.endswith(_SUFFIX):
                continue
            if self._disk.size(free) == self._segment_bytes:
                return free
            self._disk.unlink(free)  # Left unfinished by a stopped process, or of another size.
        return None

    def _make(self) -> Path:
        free = self._folder / _NEW_SEGMENT
        descriptor = self._disk.open(free, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            for offset in range(0, self._segment_bytes, len(_ZEROS)):
                write_all(self._disk, descriptor, [_ZEROS[: self._segment_bytes - offset]], offset)
            self._disk.sync(descriptor)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(free)  # An incomplete file is not reused.
            raise
        finally:
            self._disk.close(descriptor)
        return free
