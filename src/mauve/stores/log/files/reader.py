"""The reader of the segment log. It follows live writers in other processes only through their files."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final

import structlog

from mauve.stores.disk import LOCAL_DISK, Disk, write_all
from mauve.stores.log import LogRecord, Lost, Reach
from mauve.stores.log.files.backlog import waiting_bytes
from mauve.stores.log.files.segments import (
    NUMBER_GAP,
    PAYLOAD_BYTES_MAX,
    Frame,
    Segment,
    SegmentFile,
    frame_bytes,
    highest_number,
    list_segments,
    list_streams,
    open_segment,
    recycle_segments,
    stream_directory,
)

FILES_MAX: Final = 100
DAMAGE_BYTES_MAX: Final = 4 * 2**20
QUARANTINE_FOLDER: Final = "quarantine"

log = structlog.get_logger()


class Quarantine:
    """Reports each damaged location once, even if it is read repeatedly."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._reported: set[tuple[Path, Segment, int]] = set()
        self.records = 0

    def report(self, directory: Path, segment: Segment, offset: int, damaged: bytes, records: int) -> None:
        if (directory, segment, offset) in self._reported:
            return
        self._reported.add((directory, segment, offset))
        self.records += records
        kept_as = self._keep(directory / QUARANTINE_FOLDER, f"{segment.first:014d}-{offset:010d}.damaged", damaged)
        log.error(
            "log_record_damaged",
            stream=int(directory.name),
            segment=segment.name,
            offset=offset,
            records=records,
            kept_as=kept_as,
        )

    def discard(self, directory: Path, segments: list[Segment]) -> None:
        """Drop the reports about segments that no longer exist."""
        gone = {(directory, segment) for segment in segments}
        self._reported = {location for location in self._reported if location[:2] not in gone}

    def _keep(self, folder: Path, name: str, damaged: bytes) -> str | None:
        try:
            self._disk.make_directory(folder)
            names = self._disk.names(folder)
            if name not in names and len(names) >= FILES_MAX:
                return None
            descriptor = self._disk.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._disk, descriptor, [damaged], 0)
                self._disk.sync(descriptor)
            finally:
                self._disk.close(descriptor)
        except OSError:
            return None  # The copy is optional: the stream continues without it.
        return name


_PATIENCE_S: Final = 1.0
# The frame after a damaged one begins within this distance.
_SEARCH_BYTES: Final = 2 * frame_bytes(PAYLOAD_BYTES_MAX)


@dataclass
class _Cursor:
    segment: Segment
    after: int  # the last number returned to the caller
    offset: int = 0
    number: int = 0  # of the last frame before the offset, 0 at the start of a segment
    stuck_since: float | None = None  # when the reader first found nothing here

    def pass_frame(self, frame: Frame) -> None:
        self.offset, self.number, self.stuck_since = frame.end, frame.number, None

    def enter(self, segment: Segment) -> None:
        self.segment, self.offset, self.number, self.stuck_since = segment, 0, 0, None

    @property
    def next_number(self) -> int:
        return max(self.number + 1, self.segment.first)


class SegmentLogReader:
    """Reads and trims all streams. Used from one thread at a time, in one process."""

    def __init__(self, root: Path, *, disk: Disk = LOCAL_DISK, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._disk = disk
        self._monotonic = monotonic
        self._quarantine = Quarantine(disk)
        self._cursors: dict[int, _Cursor] = {}
        self._oldest: dict[int, Segment] = {}  # when the stream was last listed

    def streams(self) -> list[int]:
        return list_streams(self._disk, self._root)

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        # Listed before reading: a segment that has a successor now is complete.
        segments = self._listed(stream)
        if not segments:
            return []
        cursor = self._cursors[stream] = self._cursor(stream, after, segments)
        begins_in = cursor.segment
        records: list[LogRecord] = []
        taken_bytes = 0
        with closing(self._walk(stream, cursor, segments)) as frames:
            for frame in frames:
                if frame.number <= after:
                    continue
                taken_bytes += len(frame.payload)
                if records and taken_bytes > bytes_max:
                    break
                records.append(LogRecord(frame.number, frame.payload))
                cursor.after = frame.number
        if records:
            self.sync(stream, segments[segments.index(begins_in) : segments.index(cursor.segment) + 1])
        return records

    def records(self, stream: int, after: int, through: int) -> Iterator[LogRecord]:
        directory = stream_directory(self._root, stream)
        segments = list_segments(self._disk, directory)
        older = [one for one, successor in pairwise(segments) if successor.first > after + 1]
        for segment in [*older, *segments[-1:]]:
            try:
                with open_segment(self._disk, directory, segment) as file:
                    for frame in file.frames():
                        if frame.number > through:
                            return
                        if frame.number > after:
                            yield LogRecord(frame.number, frame.payload)
            except FileNotFoundError:
                continue  # Already loaded and recycled.

    def last_number(self, stream: int) -> int:
        return highest_number(self._disk, stream_directory(self._root, stream))

    def trim(self, stream: int, through: int) -> None:
        directory = stream_directory(self._root, stream)
        segments = list_segments(self._disk, directory)
        spent = [
            segment for segment, _ in takewhile(lambda pair: self.is_spent(stream, *pair, through), pairwise(segments))
        ]
        if not spent:
            return
        recycle_segments(self._disk, directory, spent)
        self._quarantine.discard(directory, spent)

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        waiting = 0
        for stream in self.streams():
            directory, after = stream_directory(self._root, stream), positions.get(stream, 0)
            segments = list_segments(self._disk, directory)
            if not segments:
                continue
            cursor = self._cursor(stream, after, segments)
            rest = segments[segments.index(cursor.segment) :]
            waiting += waiting_bytes(self._disk, directory, rest, after, cursor.offset)
        return waiting

    def stored_bytes(self) -> int:
        """Return the size of the segments on disk; a stream's newest one counts in full, as it does in the budget."""
        return sum(map(self._stored_bytes_of, self.streams()))

    def largest_stream_bytes(self) -> int:
        return max(map(self._stored_bytes_of, self.streams()), default=0)

    def _stored_bytes_of(self, stream: int) -> int:
        directory = stream_directory(self._root, stream)
        return sum(self._disk.size(directory / segment.name) for segment in self._listed(stream))

    def _listed(self, stream: int) -> list[Segment]:
        segments = list_segments(self._disk, stream_directory(self._root, stream))
        if segments:
            self._oldest[stream] = segments[0]
        return segments

    def quarantined(self) -> int:
        return self._quarantine.records

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        lost = {}
        for stream, oldest in self._oldest.items():
            # A restarted writer leaves a far larger gap.
            if 0 < (missing := oldest.first - positions.get(stream, 0) - 1) < NUMBER_GAP // 2:
                lost[stream] = Lost(missing, oldest.first - 1)
        return lost

    def lost_streams(self) -> frozenset[int]:
        return frozenset()

    def reach(self) -> Reach:
        return Reach()

    def close(self) -> None:
        """Do nothing: no file stays open between two calls."""

    def sync(self, stream: int, segments: list[Segment]) -> None:
        """Sync the records just read: their writer may not have done so yet, or may be dead.

        Otherwise a power cut could lose a record that others were deduplicated against, or that is partly stored.
        """
        for segment in segments:
            with open_segment(self._disk, stream_directory(self._root, stream), segment) as file:
                file.sync()

    def _cursor(self, stream: int, after: int, segments: list[Segment]) -> _Cursor:
        cursor = self._cursors.get(stream)
        if cursor and cursor.after == after and cursor.segment in segments:
            return cursor
        older = [segment for segment in segments if segment.first <= after]
        return _Cursor(older[-1] if older else segments[0], after)

    def _walk(self, stream: int, cursor: _Cursor, segments: list[Segment]) -> Generator[Frame, None, None]:
        """Yield the frames from the cursor on. It advances past a frame when the next one is requested."""
        directory = stream_directory(self._root, stream)
        rest = segments[segments.index(cursor.segment) :]
        for segment, successor in zip(rest, [*rest[1:], None], strict=True):
            if segment != cursor.segment:
                cursor.enter(segment)
            with open_segment(self._disk, directory, segment) as file:
                while frame := self._next_frame(directory, file, cursor, successor):
                    yield frame
                    cursor.pass_frame(frame)

    def _next_frame(
        self, directory: Path, file: SegmentFile, cursor: _Cursor, successor: Segment | None
    ) -> Frame | None:
        frame = file.frame_at(cursor.offset, cursor.number)
        if frame:
            return frame
        if successor:
            return self._frame_after_damage(directory, file, cursor, successor)
        return self._frame_after_gap(directory, file, cursor)

    def _frame_after_damage(
        self, directory: Path, file: SegmentFile, cursor: _Cursor, successor: Segment
    ) -> Frame | None:
        """Search a complete segment. If nothing follows, this is its end, perhaps torn by a crash."""
        frame = file.frame_after(cursor.offset, cursor.number)
        if frame:
            self._report(directory, file, cursor, frame.offset, frame.number)
            return frame
        # A writer that moves to its next segment leaves no gap in the numbers. A restarted one leaves a large gap,
        # close to NUMBER_GAP even if the last records read here are lost.
        if 0 < successor.first - cursor.next_number < NUMBER_GAP // 2:
            self._report(directory, file, cursor, cursor.offset + DAMAGE_BYTES_MAX, successor.first)
        return None

    def _frame_after_gap(self, directory: Path, file: SegmentFile, cursor: _Cursor) -> Frame | None:
        """Search the segment being written. Usually nothing is there yet; rarely, something is damaged."""
        now = self._monotonic()
        if cursor.stuck_since is None:
            cursor.stuck_since = now
        if now - cursor.stuck_since < _PATIENCE_S:
            return None
        cursor.stuck_since = None
        frame = file.frame_after(cursor.offset, cursor.number, _SEARCH_BYTES)
        if frame is None:
            return None
        # Bytes are written in order: a frame missing now, with another one after it, will never appear.
        file.drop_buffer()
        landed = file.frame_at(cursor.offset, cursor.number)
        if landed:
            return landed
        self._report(directory, file, cursor, frame.offset, frame.number)
        return frame

    def _report(self, directory: Path, file: SegmentFile, cursor: _Cursor, end: int, number: int) -> None:
        damaged = file.bytes_at(cursor.offset, min(end - cursor.offset, DAMAGE_BYTES_MAX))
        records = max(number - cursor.next_number, 1)
        self._quarantine.report(directory, cursor.segment, cursor.offset, damaged, records)

    def is_spent(self, stream: int, segment: Segment, successor: Segment, through: int) -> bool:
        """Return whether a complete segment holds no record above `through`."""
        if successor.first <= through + 1:
            return True
        # Rare: a restarted writer left a gap between their numbers.
        cursor = self._cursors.get(stream)
        offset, number = (cursor.offset, cursor.number) if cursor and cursor.segment == segment else (0, 0)
        if number > through:
            return False
        with open_segment(self._disk, stream_directory(self._root, stream), segment) as file:
            return all(frame.number <= through for frame in file.frames(offset, number))
