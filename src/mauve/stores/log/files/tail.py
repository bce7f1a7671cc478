"""The tail of a stream, where records are written. Used from one thread at a time."""

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from mauve.stores.disk import Disk, write_all
from mauve.stores.log import RECORD_NUMBER_MAX, LogFullError
from mauve.stores.log.files.frames import ALIGNMENT, HEADER_BYTES, PADDING, encode_header, frame_bytes
from mauve.stores.log.files.segments import NUMBER_GAP, Segment, SegmentPool, highest_number, list_segments

# A record to be written: its parts, their length and their checksum. A plain tuple, for speed.
Entry: TypeAlias = tuple[Sequence[bytes], int, int]

_FULL_RECHECK_S: Final = 0.1
# Less than the gap between two writers' numbers, so that a torn batch never reaches the numbers of the next writer.
_BATCH_RECORDS_MAX: Final = 2**16
JOINED_PIECE_BYTES_MAX: Final = 2**12  # Up to this mean size, copying pieces together beats listing them.
_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Tail:
    """Writes records to the newest segment and begins the next one when it is full.

    The first write begins a segment: nothing is written after the last record of a stopped writer.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        segment_bytes: int,
        budget_bytes: int,
        preparer: Executor,
        monotonic: Callable[[], float],
        new_mark: Callable[[], bytes],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._budget_bytes = budget_bytes
        self._preparer = preparer
        self._monotonic = monotonic
        self._new_mark = new_mark
        self._pool = SegmentPool(disk, directory, segment_bytes)
        self._next_number = highest_number(disk, directory) + NUMBER_GAP
        self._descriptor: int | None = None
        self._mark = b""
        self._offset = 0
        self._is_full = False  # The last attempt to begin a segment found no space.
        self._full_until = 0.0  # when to try again
        self._prepare_segment()

    @property
    def next_number(self) -> int:
        return self._next_number

    def store(self, entries: Sequence[Entry]) -> int:
        """Make the first entries durable, at least one, and return how many.

        `LogFullError` means that nothing was written; after `OSError` it is unknown what was.
        """
        descriptor = self._descriptor
        if descriptor is None or self._offset + frame_bytes(entries[0][1]) > self._segment_bytes:
            descriptor = self._begin_segment()
        pieces, end, count = self._frame(entries)
        if end - self._offset <= JOINED_PIECE_BYTES_MAX * len(pieces):
            pieces = [b"".join(pieces)]
        write_all(self._disk, descriptor, pieces, self._offset)
        self._disk.sync(descriptor)
        self._offset = end
        self._next_number += count
        return count

    def is_full(self) -> bool:
        """Return whether there was no space for the last segment. May be called from any thread.

        Check for space periodically: a process that is not ready gets no records that would trigger the check.
        """
        if self._is_full and self._monotonic() >= self._full_until:
            self._full_until = self._monotonic() + _FULL_RECHECK_S
            self._preparer.submit(self._look_for_room)
        return self._is_full

    def close(self) -> None:
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None

    def _frame(self, entries: Sequence[Entry]) -> tuple[list[bytes], int, int]:
        """Return the pieces to write for the entries that fit, the offset of their end, and their number."""
        pieces: list[bytes] = []
        mark, number, end = self._mark, self._next_number, self._offset
        for parts, length, checksum in islice(entries, _BATCH_RECORDS_MAX):
            padding = -length % ALIGNMENT
            frame_end = end + HEADER_BYTES + length + padding
            if frame_end > self._segment_bytes:
                break
            pieces.append(encode_header(mark, number, length, checksum))
            pieces += parts
            pieces.append(PADDING[padding])
            number += 1
            end = frame_end
        if number > RECORD_NUMBER_MAX:
            raise OSError(errno.EOVERFLOW, "the stream has used all its record numbers")
        return pieces, end, number - self._next_number

    def _begin_segment(self) -> int:
        if self._monotonic() < self._full_until:
            raise LogFullError("the log was full a moment ago")
        self._check_budget()
        segment = Segment(self._next_number, self._new_mark())
        try:
            self._pool.take(segment)
        except OSError as error:
            if error.errno not in _OUT_OF_SPACE:
                raise
            raise self._full("the disk is full") from error
        self._is_full = False
        # From here on a failure is final: the name may or may not be on disk.
        self._pool.sync_directories()
        self.close()
        descriptor = self._descriptor = self._disk.open(self._directory / segment.name, os.O_WRONLY)
        self._mark = segment.mark
        self._offset = 0
        self._preparer.submit(self._prepare_segment)
        return descriptor

    def _check_budget(self) -> None:
        segments = list_segments(self._disk, self._directory)
        stored_bytes = sum(self._disk.size(self._directory / segment.name) for segment in segments)
        if stored_bytes + self._segment_bytes > self._budget_bytes:
            raise self._full("the log has reached its disk budget")

    def _full(self, reason: str) -> LogFullError:
        self._is_full, self._full_until = True, self._monotonic() + _FULL_RECHECK_S
        return LogFullError(reason)

    def _look_for_room(self) -> None:
        with suppress(LogFullError, OSError):
            self._check_budget()
            self._pool.prepare()
            self._is_full, self._full_until = False, 0.0

    def _prepare_segment(self) -> None:
        with suppress(OSError):  # The writer retries when it needs a file.
            self._pool.prepare()
