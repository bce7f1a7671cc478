"""A file of items, one per line with its checksum, and next to it a file with the numbers of the completed lines."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path

from mauve_metrics._items import Item

ITEMS, DONE = ".items", ".done"

_LINE_BYTES_MAX = 256 * 1024
_TORN_LINE = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} .{0,%d}" % _LINE_BYTES_MAX, re.DOTALL)


class Entry:
    """A queued item."""

    __slots__ = ("body", "does_expire", "line", "line_bytes", "number", "queued_at_ms", "segment")

    def __init__(self, body: bytes, queued_at_ms: int, *, does_expire: bool) -> None:
        self.body = body  # JSON, without `sent_at`
        self.queued_at_ms = queued_at_ms
        self.does_expire = does_expire
        self.number = 0  # in the order of the queue
        self.segment: Segment | None = None  # None: only in memory
        self.line = 0
        self.line_bytes = 0

    def has_expired(self, oldest_ms: int) -> bool:
        return self.does_expire and self.queued_at_ms < oldest_ms


class Folder:
    """A folder of segments whose lock this process holds."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.segments: list[Segment] = []
        self.waiting: deque[Path] = deque()  # segments that an earlier owner left, not taken over yet
        self._lock = lock

    def release(self) -> None:
        """Unlock the folder, and remove it if it is empty."""
        if not self.segments and not self.waiting:
            with suppress(OSError):  # A file that could not be read keeps it.
                self.path.rmdir()
        self.forget()

    def forget(self) -> None:
        """Close the lock's file. In a child after a fork, this leaves the lock to the parent."""
        lock, self._lock = self._lock, -1  # first: a child must not close what has this number by then
        if lock >= 0:
            with suppress(OSError):
                os.close(lock)


class Segment:
    """The lines of a file. Those from `lines_read` on have not been read; open ones are not done."""

    def __init__(self, folder: Folder, path: Path) -> None:
        self.folder = folder
        self.path = path
        self.bytes = 0
        self.lines = 0
        self.open_lines = 0
        self.open_bytes = 0
        self.unread = 0
        self.lines_read = 0
        self.bytes_read = 0
        self.lines_searched = 0  # Lines before this one hold no unread event.
        self.bytes_searched = 0
        self.done: set[int] = set()  # as an earlier owner left them, or dropped before they were read
        self.unnoted: list[int] = []  # lines that are done, but not in the file yet
        self.is_attached = True

    def note_done(self) -> None:
        """Record the completed lines. If that fails, they are written together with the next ones."""
        lines = b"".join(b"%d\n" % line for line in self.unnoted)
        with self.path.with_suffix(DONE).open("ab", buffering=0) as file:
            file.write(lines)
        self.unnoted.clear()

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(DONE).unlink(missing_ok=True)


def loaded_segment(folder: Folder, path: Path) -> Segment:
    """Count the lines of a file and those completed. An unterminated last line was torn when its writer died."""
    segment = Segment(folder, path)
    done = path.with_suffix(DONE)
    try:
        content = path.read_bytes()
        *numbers, torn = done.read_bytes().split(b"\n") if done.exists() else [b""]
        if torn:  # The next number would be appended to it.
            os.truncate(done, done.stat().st_size - len(torn))
    except FileNotFoundError:
        return segment
    *lines, last = content.split(b"\n")
    if not _TORN_LINE.fullmatch(last):
        lines.append(last)  # not the beginning of a line, but damaged: reading it reports that
    segment.bytes, segment.lines = len(content), len(lines)
    segment.done = {int(number) for number in numbers if number.isdigit() and int(number) < segment.lines}
    segment.open_bytes = sum(len(line) + 1 for number, line in enumerate(lines) if number not in segment.done)
    segment.open_lines = segment.unread = segment.lines - len(segment.done)
    return segment


def as_line(entry: Entry) -> bytes:
    content = b"%d %d %b" % (entry.queued_at_ms, entry.does_expire, entry.body)
    return b"%08x %b\n" % (zlib.crc32(content), content)


def entry_from(line: bytes) -> Entry:
    """Return the entry of a line, or raise a ValueError."""
    checksum, _, content = line.rstrip(b"\n").partition(b" ")
    if int(checksum, 16) != zlib.crc32(content):
        raise ValueError("a line was changed")
    queued_at_ms, does_expire, body = content.split(b" ", 2)
    return Entry(body, int(queued_at_ms), does_expire=does_expire == b"1")


def legible_item(line: bytes) -> Item:
    """Return the item of a damaged line if its JSON can still be read, else an empty one."""
    try:
        item = json.loads(line[line.index(b"{") :])
    except (ValueError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}
