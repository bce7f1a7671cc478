"""The items of one endpoint on disk, so that they survive the process.

Each client writes to its own folder and holds its lock while it is alive. A client that acquires the lock of an
abandoned folder adopts its files one at a time, each after everything before it has been read, so that they take no
room from the items of this process. A file without open items is deleted.

Lines are written, not synced: they survive the process, but not a power cut.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from mauve_metrics._folders import abandoned_folder, new_folder, remove_unnamed_folders
from mauve_metrics._items import ITEM_BYTES_MAX, Item
from mauve_metrics._segment import (
    DONE,
    ITEMS,
    Entry,
    Folder,
    Segment,
    as_line,
    entry_from,
    legible_item,
    loaded_segment,
)

_SEGMENT_BYTES_MAX = 1024 * 1024
_SEGMENTS = 64  # that fill the spool
_PARTLY_DONE = 3  # segments of which only some lines are done: at the head, in flight, and where the oldest are dropped
_LINE_OVERHEAD = 64
_CORRUPT = ".corrupt"


class Spool:
    """Segments in the order in which they are read; the last may still be written.

    Called under the client's lock, apart from `find_abandoned` and `load_abandoned`.
    """

    def __init__(self, root: Path, prefix: str, bytes_max: int) -> None:
        self.unread = 0  # items that are only on disk
        self.lost = 0  # items that could not be read
        self.lost_own = 0  # of them, those that this client queued
        self._unreported: list[tuple[Item, str]] = []
        self.problem = ""  # the last one, for the client to report outside its lock
        self._root = root
        self._prefix = prefix
        self._segment_bytes_max = min(_SEGMENT_BYTES_MAX, bytes_max // _SEGMENTS)
        self._open_bytes_max = bytes_max - _PARTLY_DONE * self._segment_bytes_max
        self._open_bytes = 0
        self._segments: deque[Segment] = deque()
        self._own: Folder | None = None
        self._abandoned: Folder | None = None
        self._unreadable: set[Path] = set()  # abandoned folders, until the next search
        self._written: int | None = None  # the file of the last segment
        self._number = 0

    def has_room_for(self, entry: Entry) -> bool:
        return self._open_bytes + len(entry.body) + _LINE_OVERHEAD <= self._open_bytes_max

    @property
    def has_room(self) -> bool:
        """Whether an item of any size fits. One always does if the spool is empty."""
        return not self._open_bytes or self._open_bytes + ITEM_BYTES_MAX + _LINE_OVERHEAD <= self._open_bytes_max

    def append(self, entry: Entry, *, is_read: bool) -> bool:
        """Write an entry, which the queue holds if `is_read`; return whether it is on disk."""
        line = as_line(entry)
        try:
            segment = self._write(line)
        except OSError as error:
            self.problem = f"could not write to the spool, so items are only in memory: {error}"
            self._seal()  # Whatever was written is a torn last line.
            return False
        except BaseException:  # of a signal handler: the line may be there, so the next would get a wrong number
            self._seal()
            raise
        # No call in between: a signal handler that raises finds all of it done, or nothing.
        size = entry.line_bytes = len(line)
        entry.segment, entry.line = segment, segment.lines
        segment.lines += 1
        segment.open_lines += 1
        segment.bytes += size
        segment.open_bytes += size
        self._open_bytes += size
        if is_read:
            segment.lines_read, segment.bytes_read = segment.lines, segment.bytes
        else:
            segment.unread += 1
            self.unread += 1
        return True

    def read(self, count: int) -> list[Entry]:
        """Return up to `count` of the next entries that are only on disk; fewer if the rest cannot be read now."""
        entries: list[Entry] = []
        for segment in list(self._segments):
            if segment.unread and len(entries) < count:
                try:
                    self._read_segment(segment, entries, count)
                except FileNotFoundError as error:
                    self._lose(segment, error)
                except OSError as error:  # temporary, such as too many open files
                    self.problem = f"could not read the spool; retrying: {error}"
                    break
        return entries

    def drop_event(self) -> Entry | None:
        """Give up the oldest event that is only on disk; None if there is none, or it cannot be read now."""
        for segment in list(self._segments):
            if segment.unread:
                with suppress(OSError):
                    entry = self._searched(segment)
                    if entry is not None:
                        return entry
        return None

    def settle(self, entries: Iterable[Entry]) -> None:
        """Record that entries were answered or dropped: they are never read again."""
        settled: dict[Segment, list[Entry]] = {}
        for entry in entries:
            if entry.segment is not None and entry.segment.is_attached:
                settled.setdefault(entry.segment, []).append(entry)
                entry.segment = None
        for segment, those in settled.items():
            self._close_lines(segment, [entry.line for entry in those], sum(entry.line_bytes for entry in those))

    def take_problem(self) -> tuple[str, list[tuple[Item, str]]]:
        """Return what to log, and the items that were lost since the last call."""
        problem, self.problem = self.problem, ""
        lost, self._unreported = self._unreported, []
        return problem, lost

    def find_abandoned(self) -> bool:
        """Search for an abandoned segment. For one thread, without the lock."""
        if self._abandoned is None:
            self._abandoned = abandoned_folder(self._root, self._prefix, self._unreadable)
        if self._abandoned is None:
            self._unreadable.clear()
            remove_unnamed_folders(self._root)
        return self._abandoned is not None

    @property
    def files_waiting(self) -> int:
        """How many abandoned files were found but not adopted."""
        folder = self._abandoned
        return 0 if folder is None else len(folder.waiting)

    def load_abandoned(self) -> Segment | None:
        """Return the segment that was found; None if it cannot be read now. For the same thread."""
        folder = self._abandoned
        if folder is None:
            return None
        try:
            return loaded_segment(folder, folder.waiting[0])
        except OSError as error:
            self.problem = f"could not read the spool; retrying: {error}"
            self._unreadable.add(folder.path)
            return None

    def attach(self, segment: Segment | None) -> None:
        """Adopt the segment that was found; None leaves it in place."""
        folder = self._abandoned
        if folder is None:
            return
        folder.waiting.popleft()
        if segment is not None and segment.open_lines:
            self._seal()
            folder.segments.append(segment)
            self._segments.append(segment)
            self._open_bytes += segment.open_bytes
            self.unread += segment.unread
        elif segment is not None:
            with suppress(OSError):
                segment.delete()
        if not folder.waiting:
            self._abandoned = None
            self._release_if_empty(folder)

    def close(self) -> None:
        """Leave what is on disk to the next start."""
        self._seal()
        for folder in self._folders():
            folder.release()
        self._segments.clear()
        self._own = self._abandoned = None
        self.unread = 0

    def forget(self) -> None:
        """Drop everything that belongs to the parent process, without a change on disk."""
        self._close_written()
        for folder in self._folders():
            folder.forget()

    def _folders(self) -> list[Folder]:
        folders = [*(segment.folder for segment in self._segments), self._own, self._abandoned]
        return list({id(folder): folder for folder in folders if folder is not None}.values())

    def _write(self, line: bytes) -> Segment:
        """Append a line to the last segment, or to a new one if there is none, or it would become too large."""
        if self._written is not None and self._segments[-1].bytes + len(line) > self._segment_bytes_max:
            self._seal()
        if self._written is None:
            self._written = self._open_segment()
        if os.write(self._written, line) != len(line):
            raise OSError("the disk is full")
        return self._segments[-1]

    def _open_segment(self) -> int:
        if self._own is None:
            self._own = new_folder(self._root, self._prefix)
        self._number += 1
        path = self._own.path / f"{self._number:08d}{ITEMS}"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        segment = Segment(self._own, path)
        self._own.segments.append(segment)
        self._segments.append(segment)
        return file

    def _close_written(self) -> None:
        file, self._written = self._written, None  # first: a child must not close what has this number by then
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _seal(self) -> None:
        if self._written is not None:
            self._close_written()
            if not self._segments[-1].open_lines:
                self._remove(self._segments[-1])

    def _read_segment(self, segment: Segment, entries: list[Entry], count: int) -> None:
        with segment.path.open("rb") as file:
            file.seek(segment.bytes_read)
            while segment.unread and len(entries) < count:
                line = file.readline()
                if not line:
                    raise FileNotFoundError("the file has become shorter")
                number, is_open = segment.lines_read, segment.lines_read not in segment.done
                segment.lines_read += 1
                segment.bytes_read += len(line)
                if is_open:
                    segment.unread -= 1
                    self.unread -= 1
                    self._read_line(segment, number, line, entries)

    def _searched(self, segment: Segment) -> Entry | None:
        """Drop the segment's next unread event. Skip damaged lines: reading reports them."""
        if segment.lines_searched < segment.lines_read:
            segment.lines_searched, segment.bytes_searched = segment.lines_read, segment.bytes_read
        with segment.path.open("rb") as file:
            file.seek(segment.bytes_searched)
            while segment.lines_searched < segment.lines:
                number, line = segment.lines_searched, file.readline()
                segment.lines_searched += 1
                segment.bytes_searched += len(line)
                try:
                    entry = entry_from(line)
                except ValueError:
                    continue
                if entry.does_expire and number not in segment.done:
                    segment.done.add(number)
                    segment.unread -= 1
                    self.unread -= 1
                    self._close_lines(segment, [number], len(line))
                    return entry
        return None

    def _read_line(self, segment: Segment, number: int, line: bytes, entries: list[Entry]) -> None:
        try:
            entry = entry_from(line)
        except ValueError as error:
            self._set_aside(segment, line, error)
            self._close_lines(segment, [number], len(line))
        else:
            entry.segment, entry.line, entry.line_bytes = segment, number, len(line)
            entries.append(entry)

    def _close_lines(self, segment: Segment, lines: Sequence[int], size: int) -> None:
        segment.open_lines -= len(lines)
        segment.open_bytes -= size
        self._open_bytes -= size
        segment.unnoted.extend(lines)
        try:
            if segment.open_lines:
                segment.note_done()
            elif self._written is not None and segment is self._segments[-1]:
                self._seal()
            else:
                self._remove(segment)
        except OSError as error:
            self.problem = f"could not mark items in the spool as sent, so they may be sent again: {error}"

    def _remove(self, segment: Segment) -> None:
        """Delete a segment that has no open items."""
        self._detach(segment)
        segment.delete()
        self._release_if_empty(segment.folder)

    def _set_aside(self, segment: Segment, line: bytes, error: ValueError) -> None:
        """Move a damaged line to a separate file for the operator, and drop its item."""
        aside = self._root / f"{segment.folder.path.name}-{segment.path.stem}{_CORRUPT}"
        self.problem = f"an item of the spool was damaged, and is now in {aside}: {error}"
        self._count_lost(segment, [legible_item(line)])
        with suppress(OSError), aside.open("ab") as file:
            file.write(line if line.endswith(b"\n") else line + b"\n")

    def _lose(self, segment: Segment, error: OSError) -> None:
        """Drop the items of a missing file."""
        self.problem = f"{segment.unread} items of the spool are gone: {error}"
        if segment is self._segments[-1]:
            self._close_written()
        self.unread -= segment.unread
        self._count_lost(segment, [{}] * segment.unread)
        segment.unread = 0
        self._detach(segment)
        if not segment.path.exists():
            with suppress(OSError):
                segment.path.with_suffix(DONE).unlink(missing_ok=True)
        self._release_if_empty(segment.folder)

    def _count_lost(self, segment: Segment, items: Sequence[Item]) -> None:
        self.lost += len(items)
        self.lost_own += len(items) if segment.folder is self._own else 0
        self._unreported += [(item, "the spool was damaged") for item in items]

    def _detach(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.folder.segments.remove(segment)
        segment.is_attached = False
        self._open_bytes -= segment.open_bytes

    def _release_if_empty(self, folder: Folder) -> None:
        if folder is not self._own and not folder.segments and not folder.waiting:
            folder.release()
