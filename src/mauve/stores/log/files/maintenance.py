"""Erase loaded records from the log's files.

Segments are recycled: trimmed ones wait in the pool, and a stream's newest record is followed by remains of an earlier
use. These are never read, and are eventually overwritten. A writer may reuse any of these files at any time, so only
streams without a writer are erased.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mauve.stores.disk import LOCAL_DISK, write_all
from mauve.stores.log.files.frames import checksum_of_payload, encode_header
from mauve.stores.log.files.quarantine import QUARANTINE_FOLDER
from mauve.stores.log.files.segments import (
    POOL_FOLDER,
    Segment,
    list_segments,
    list_streams,
    open_segment,
    stream_directory,
)
from mauve.stores.log.files.writer import WRITER_LOCK

_ZEROS: Final = memoryview(bytes(2**20))


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
