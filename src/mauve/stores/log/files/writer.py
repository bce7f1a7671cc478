"""The writer of the segment log: group commit.

One flush is in progress at a time; records that arrive during it form the next group. Under load, many records share
one sync; a single record never waits for others.
"""

import asyncio
import errno
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from mauve.stores.data_directory import HeldError
from mauve.stores.disk import LOCAL_DISK, Disk, write_all
from mauve.stores.log import RECORD_NUMBER_MAX, STREAM_MAX, LogFailedError, LogFullError, place_of
from mauve.stores.log.files.segments import (
    ALIGNMENT,
    HEADER_BYTES,
    NUMBER_GAP,
    PADDING,
    PAYLOAD_BYTES_MAX,
    Segment,
    SegmentPool,
    checksum_of_payload,
    encode_header,
    frame_bytes,
    highest_number,
    list_segments,
    make_stream_directory,
    random_mark,
)

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
        self.next_number = highest_number(disk, directory) + NUMBER_GAP
        self._descriptor: int | None = None
        self._mark = b""
        self._offset = 0
        self._is_full = False  # The last attempt to begin a segment found no space.
        self._full_until = 0.0  # when to try again
        self._prepare_segment()

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
        self.next_number += count
        return count

    def is_full(self) -> bool:
        """Return whether there was no space for the last segment. May be called from any thread.

        Check for space periodically: a process that is not ready gets no records that would trigger the check.
        """
        if self._is_full and self._monotonic() >= self._full_until:
            self._full_until = math.inf  # One check at a time: on a full disk, each may write a whole segment.
            self._preparer.submit(self._look_for_room)
        return self._is_full

    def close(self) -> None:
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None

    def _frame(self, entries: Sequence[Entry]) -> tuple[list[bytes], int, int]:
        """Return the pieces to write for the entries that fit, the offset of their end, and their number."""
        pieces: list[bytes] = []
        mark, number, end = self._mark, self.next_number, self._offset
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
        return pieces, end, number - self.next_number

    def _begin_segment(self) -> int:
        if self._monotonic() < self._full_until:
            raise LogFullError("the log was full a moment ago")
        self._check_budget()
        segment = Segment(self.next_number, self._new_mark())
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
        try:
            with suppress(LogFullError, OSError):
                self._check_budget()
                self._pool.prepare()
                self._is_full = False
        finally:
            self._full_until = self._monotonic() + _FULL_RECHECK_S if self._is_full else 0.0

    def _prepare_segment(self) -> None:
        with suppress(OSError):  # The writer retries when it needs a file.
            self._pool.prepare()


SEGMENT_BYTES: Final = 64 * 2**20
BUDGET_BYTES: Final = 8 * 2**30
QUICK_FLUSH_S: Final = 0.001
ASSUMED_FLUSH_S: Final = 0.004  # assumed until the disk has been measured
_FLUSH_WEIGHT: Final = 0.25
_GROUP_RECORDS_MAX: Final = 64
_GROUP_BYTES_MAX: Final = 2**20  # No flush should block the event loop for long.
WRITER_LOCK: Final = "writer.lock"

log = structlog.get_logger()


def one_thread() -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix="log")


class SegmentLogWriter:
    """Appends to one stream, from one event loop. A second writer of the same stream is refused."""

    def __init__(
        self,
        root: Path,
        stream: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        budget_bytes: int = BUDGET_BYTES,
        disk: Disk = LOCAL_DISK,
        new_thread: Callable[[], Executor] = one_thread,
        monotonic: Callable[[], float] = time.monotonic,
        new_mark: Callable[[], bytes] = random_mark,
    ) -> None:
        if not 0 <= stream <= STREAM_MAX:
            raise ValueError(f"a stream is numbered from 0 to {STREAM_MAX}, not {stream}")
        if budget_bytes < 2 * segment_bytes:
            raise ValueError("a log needs a budget of two segments: the newest is never trimmed")
        self._payload_bytes_max = min(PAYLOAD_BYTES_MAX, segment_bytes - HEADER_BYTES)
        self._disk = disk
        self._directory = make_stream_directory(disk, root, stream)
        self._lock = _lock_stream(disk, self._directory)
        self._place_zero = place_of(stream, 0)
        self._flusher, self._preparer = new_thread(), new_thread()
        try:
            self._tail = Tail(
                disk,
                self._directory,
                segment_bytes=segment_bytes,
                budget_bytes=budget_bytes,
                preparer=self._preparer,
                monotonic=monotonic,
                new_mark=new_mark,
            )
        except BaseException:
            disk.close(self._lock)
            raise
        self._entries: list[Entry] = []
        self._entries_bytes = 0
        self._waiting: list[asyncio.Future[int]] = []
        self._last_number = self._tail.next_number - 1
        self._is_flushing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._refusal = ""
        self.has_failed = False
        self._monotonic = monotonic
        self.flush_s = ASSUMED_FLUSH_S
        self._is_closed = False

    @property
    def is_available(self) -> bool:
        return not self._refusal and not self._tail.is_full()

    def last_number(self) -> int:
        """Return a number that no durable record exceeds and every later record will."""
        return self._last_number

    def append(self, parts: Sequence[bytes]) -> asyncio.Future[int]:
        length = sum(map(len, parts))
        if length > self._payload_bytes_max:
            raise ValueError(f"a record of {length} bytes is above the limit of {self._payload_bytes_max}")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        if self._refusal:
            done.set_exception(LogFailedError(self._refusal))
            return done
        # Computed here: the flush thread would have to reacquire the interpreter after every large checksum.
        self._entries.append((parts, length, checksum_of_payload(parts)))
        self._entries_bytes += length
        self._waiting.append(done)
        if not self._is_flushing:
            self._start_flush(loop)
        return done

    async def close(self) -> None:
        """Finish pending appends, then release the stream."""
        self._refusal = self._refusal or "the log is closed"
        await self._idle.wait()
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._flusher.shutdown()
        self._preparer.shutdown()
        self._tail.close()
        self._disk.close(self._lock)

    def _start_flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_flushing = True
        self._idle.clear()
        if self.flush_s < QUICK_FLUSH_S:
            loop.call_soon(self._flush_when_quiet, loop, 0)
        else:
            self._flusher.submit(self._flush_in_thread, loop, *self._next_group())

    def _next_group(self) -> tuple[list[Entry], list[asyncio.Future[int]]]:
        entries, self._entries, self._entries_bytes = self._entries, [], 0
        waiting, self._waiting = self._waiting, []
        return entries, waiting

    def _flush_when_quiet(self, loop: asyncio.AbstractEventLoop, seen: int) -> None:
        """Let the group grow while each event loop iteration adds to it, so that one sync covers more records."""
        if seen < len(self._entries) < _GROUP_RECORDS_MAX and self._entries_bytes < _GROUP_BYTES_MAX:
            loop.call_soon(self._flush_when_quiet, loop, len(self._entries))
        else:
            self._flush_inline(loop)

    def _flush_inline(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush in the event loop's thread: with a fast disk, this is faster than switching threads."""
        entries, waiting = self._next_group()
        first = self._tail.next_number
        self._settle(loop, waiting, first, *self._store(entries))

    def _flush_in_thread(
        self, loop: asyncio.AbstractEventLoop, entries: list[Entry], waiting: list[asyncio.Future[int]]
    ) -> None:
        """Flush in a separate thread: a slow disk must not block the event loop."""
        first = self._tail.next_number
        stored, error = self._store(entries)
        loop.call_soon_threadsafe(self._settle, loop, waiting, first, stored, error)

    def _store(self, entries: list[Entry]) -> tuple[int, LogFailedError | LogFullError | None]:
        """Return how many entries are durable, and why the others are not."""
        began = self._monotonic()
        stored = 0
        error: LogFailedError | LogFullError | None = None
        try:
            while stored < len(entries):
                stored += self._tail.store(entries[stored:] if stored else entries)
        except LogFullError as full:
            error = full
        except Exception as failure:  # noqa: BLE001 - every caller must get an answer
            error = LogFailedError(f"the log cannot be written: {failure}")
        self.flush_s += (self._monotonic() - began - self.flush_s) * _FLUSH_WEIGHT
        return stored, error

    def _settle(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: list[asyncio.Future[int]],
        first: int,
        stored: int,
        error: LogFailedError | LogFullError | None,
    ) -> None:
        for place, done in enumerate(waiting[:stored], self._place_zero + first):
            if not done.done():  # The caller may have given up.
                done.set_result(place)
        self._last_number = first + stored - 1
        if isinstance(error, LogFailedError):
            self.refuse_everything(str(error))
        if error is not None:
            _fail(waiting[stored:], error)
        if self._waiting:
            self._start_flush(loop)
        else:
            self._is_flushing = False
            self._idle.set()

    def refuse_everything(self, reason: str) -> None:
        """Stop permanently. A failed sync is not retried: the retry could succeed even though the record is lost."""
        log.error("log_writer_failed", directory=str(self._directory), reason=reason)
        self._refusal, self.has_failed = reason, True
        _fail(self._waiting, LogFailedError(reason))
        self._entries, self._waiting = [], []


def _fail(waiting: Sequence[asyncio.Future[int]], error: LogFailedError | LogFullError) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(type(error)(*error.args))  # One each: a shared one would accumulate tracebacks.


def _lock_stream(disk: Disk, directory: Path) -> int:
    descriptor = disk.open(directory / WRITER_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        disk.lock(descriptor)
    except BlockingIOError:
        disk.close(descriptor)
        raise HeldError(f"{directory} already has a writer: stop that process first") from None
    return descriptor
