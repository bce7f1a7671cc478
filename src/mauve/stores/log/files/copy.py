"""Copy the unloaded part of the log into a small separate log.

Segments are recycled, so their files also hold bytes of records loaded long ago. Those are not copied.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final

from mauve.stores.disk import LOCAL_DISK, write_all
from mauve.stores.log import LogRecord
from mauve.stores.log.files.frames import (
    checksum_of_payload,
    encode_header,
    frame_bytes,
    padding_after,
)
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.segments import Segment, highest_number, stream_directory
from mauve.stores.log.files.writer import random_mark

_BATCH_BYTES: Final = 16 * 2**20


def copy_unloaded(source: Path, target: Path, positions: Mapping[int, int]) -> int:
    """Copy the current records after the positions; return their number. The log must not be trimmed during the copy.

    Each stream begins after its position even if it is empty, so that a writer to the copy reuses no number.
    """
    copied = 0
    for stream in SegmentLogReader(source).streams():
        folder = stream_directory(target, stream)
        folder.mkdir(mode=0o700, parents=True)
        after = positions.get(stream, 0)
        of_stream = 0
        for batch in _batches(source, stream, after):
            _write(folder, batch[0].number, batch)
            of_stream += len(batch)
        if not of_stream:
            _write(folder, after + 1, [])
        copied += of_stream
    return copied


def _batches(source: Path, stream: int, after: int) -> Iterator[list[LogRecord]]:
    """Read up to the last record present at the start, because writers may keep adding more."""
    # With this clock the reader searches past damage at the second read instead of a second later.
    reader = SegmentLogReader(source, monotonic=count(step=2).__next__)
    last = highest_number(LOCAL_DISK, stream_directory(source, stream))
    empty_reads = 0
    while after < last and empty_reads < 2:  # noqa: PLR2004 - the second one searches past damage
        records = reader.read(stream, after, _BATCH_BYTES)
        if records:
            after = records[-1].number
            yield records
        empty_reads = 0 if records else empty_reads + 1


def _write(folder: Path, first: int, records: list[LogRecord]) -> None:
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
