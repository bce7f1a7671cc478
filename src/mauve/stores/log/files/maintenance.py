"""Erase loaded records from the log's files, and copy the others into a small separate log.

Segments are recycled: trimmed ones wait in the pool, and a stream's newest record is followed by remains of an earlier
use. These are never read or copied, and are eventually overwritten. A writer may reuse any of these files at any time,
so only streams without a writer are erased.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mauve.stores.disk import LOCAL_DISK, write_all
from mauve.stores.log import LogRecord
from mauve.stores.log.files.reader import QUARANTINE_FOLDER, SegmentLogReader
from mauve.stores.log.files.segments import (
    POOL_FOLDER,
    Segment,
    checksum_of_payload,
    encode_header,
    frame_bytes,
    highest_number,
    list_segments,
    list_streams,
    open_segment,
    padding_after,
    random_mark,
    stream_directory,
)
from mauve.stores.log.files.writer import WRITER_LOCK

_ZEROS: Final = memoryview(bytes(2**20))
_COPIED_SEGMENT_BYTES: Final = 16 * 2**20


class SegmentLogMaintenance:
    def __init__(self, root: Path, positions: Callable[[], Mapping[int, int]]) -> None:
        self._root = root
        self._positions = positions

    def erase_damaged(self, text: str) -> int:
        needles = (text.encode(), json.dumps(text).strip('"').encode())
        erased = 0
        for stream in list_streams(LOCAL_DISK, self._root):
            folder = stream_directory(self._root, stream) / QUARANTINE_FOLDER
            for path in [folder / name for name in LOCAL_DISK.names(folder)]:
                content = path.read_bytes()
                if any(needle in content for needle in needles):
                    path.unlink()
                    erased += 1
        return erased

    def blank_loaded(self) -> bool:
        positions = self._positions()
        streams = list_streams(LOCAL_DISK, self._root)
        blanked = [self._blank_stream(stream, positions.get(stream, 0)) for stream in streams]
        return all(blanked)

    def _blank_stream(self, stream: int, through: int) -> bool:
        directory = stream_directory(self._root, stream)
        lock = LOCAL_DISK.open(directory / WRITER_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            LOCAL_DISK.lock(lock)
            _delete_pool(directory / POOL_FOLDER)
            for segment in list_segments(LOCAL_DISK, directory):
                _blank_segment(directory, segment, through)
        except BlockingIOError:
            return False
        finally:
            LOCAL_DISK.close(lock)
        return True


def _delete_pool(folder: Path) -> None:
    for name in LOCAL_DISK.names(folder):
        with suppress(FileNotFoundError):
            LOCAL_DISK.unlink(folder / name)


def _blank_segment(directory: Path, segment: Segment, through: int) -> None:
    """Blank the payloads of frames up to a number, and all bytes outside frames."""
    descriptor = LOCAL_DISK.open(directory / segment.name, os.O_RDWR)
    try:
        end = 0
        with open_segment(LOCAL_DISK, directory, segment) as file:
            for frame in file.frames():
                _zero(descriptor, end, frame.offset)
                if frame.number <= through:
                    _empty(descriptor, segment, frame.number, frame.offset, len(frame.payload))
                end = frame.end
        _zero(descriptor, end, os.fstat(descriptor).st_size)
        LOCAL_DISK.sync(descriptor)
    finally:
        LOCAL_DISK.close(descriptor)


def _empty(descriptor: int, segment: Segment, number: int, offset: int, length: int) -> None:
    payload = bytes(length)
    header = encode_header(segment.mark, number, length, checksum_of_payload([payload]))
    write_all(LOCAL_DISK, descriptor, [header, payload], offset)


def _zero(descriptor: int, start: int, end: int) -> None:
    for offset in range(start, end, len(_ZEROS)):
        write_all(LOCAL_DISK, descriptor, [_ZEROS[: end - offset]], offset)


def copy_unloaded(source: Path, target: Path, positions: Mapping[int, int]) -> int:
    """Copy the current records after the positions; return their number. The log must not be trimmed during the copy.

    Each stream begins after its position even if it is empty, so that a writer to the copy reuses no number.
    """
    copied = 0
    reader = SegmentLogReader(source)
    for stream in reader.streams():
        folder = stream_directory(target, stream)
        folder.mkdir(mode=0o700, parents=True)
        after = positions.get(stream, 0)
        through = highest_number(LOCAL_DISK, stream_directory(source, stream))  # Writers may add more.
        for records in _by_segment(reader.records(stream, after, through)):
            _write_segment(folder, records[0].number if records else after + 1, records)
            after = records[-1].number if records else after
            copied += len(records)
    return copied


def _by_segment(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    """Yield the records of each segment of the copy, of which there is at least one."""
    batch: list[LogRecord] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.payload)
        if size >= _COPIED_SEGMENT_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _write_segment(folder: Path, first: int, records: list[LogRecord]) -> None:
    segment = Segment(first, random_mark())
    descriptor = LOCAL_DISK.open(folder / segment.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        offset = 0
        for number, payload in records:
            header = encode_header(segment.mark, number, len(payload), checksum_of_payload([payload]))
            write_all(LOCAL_DISK, descriptor, [header, payload, padding_after(len(payload))], offset)
            offset += frame_bytes(len(payload))
    finally:
        LOCAL_DISK.close(descriptor)
