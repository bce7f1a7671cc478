"""The writer of the segment log: group commit.

One flush is in progress at a time; records that arrive during it form the next group. Under load, many records share
one sync; a single record never waits for others.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from mauve.stores.data_directory import HeldError
from mauve.stores.disk import LOCAL_DISK, Disk
from mauve.stores.log import STREAM_MAX, LogFailedError, LogFullError, place_of
from mauve.stores.log.files import frames
from mauve.stores.log.files.segments import make_stream_directory
from mauve.stores.log.files.tail import Entry, Tail

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


def random_mark() -> bytes:
    return secrets.token_bytes(frames.MARK_BYTES)


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
        self._payload_bytes_max = min(frames.PAYLOAD_BYTES_MAX, segment_bytes - frames.HEADER_BYTES)
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
        self._has_failed = False
        self._monotonic = monotonic
        self._flush_s = ASSUMED_FLUSH_S
        self._is_closed = False

    @property
    def flush_s(self) -> float:
        return self._flush_s

    @property
    def has_failed(self) -> bool:
        return self._has_failed

    @property
    def is_available(self) -> bool:
        return not self._refusal and not self._tail.is_full()

    @property
    def last_number(self) -> int:
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
        self._entries.append((parts, length, frames.checksum_of_payload(parts)))
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
        if self._flush_s < QUICK_FLUSH_S:
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
        self._flush_s += (self._monotonic() - began - self._flush_s) * _FLUSH_WEIGHT
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
        self._refusal, self._has_failed = reason, True
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
