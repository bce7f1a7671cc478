"""A look at one stream of the segment log, beside its writer and the loader."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from mauve.stores.localdisk.disk import LOCAL_DISK, Disk
from mauve.stores.localdisk.log.segments import Segment, list_segments, open_segment, stream_directory
from mauve.stores.log import LogRecord


class SegmentStreamReader:
    def __init__(self, root: Path, stream: int, *, disk: Disk = LOCAL_DISK) -> None:
        self._directory = stream_directory(root, stream)
        self._disk = disk

    def records(self, after: int, through: int) -> Iterator[LogRecord]:
        for segment in self._segments(after, through):
            try:
                yield from self._records_in(segment, after, through)
            except FileNotFoundError:
                continue  # It was loaded, and is used again.

    def _segments(self, after: int, through: int) -> list[Segment]:
        """Return those that may hold such records."""
        segments = list_segments(self._disk, self._directory)
        older = [one for one, successor in pairwise(segments) if successor.first > after + 1]
        return [segment for segment in [*older, *segments[-1:]] if segment.first <= through]

    def _records_in(self, segment: Segment, after: int, through: int) -> Iterator[LogRecord]:
        with open_segment(self._disk, self._directory, segment) as file:
            for frame in file.frames():
                if frame.number > through:
                    return
                if frame.number > after:
                    yield LogRecord(frame.number, frame.payload)
