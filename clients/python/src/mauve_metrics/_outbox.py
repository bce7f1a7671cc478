"""The queue of one endpoint: what is in memory, what is only on disk, and since when it is held.

Not thread-safe: every call is made under the lock of the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mauve_metrics._items import SENT_AT_BYTES
from mauve_metrics._segment import Entry
from mauve_metrics._spool import Spool

BODY_BYTES_MAX = 921_600
EXPIRES_AFTER_MS = (7 * 24 - 1) * 3_600_000  # After seven days the service no longer knows the id.

NEVER = float("inf")
_READ_AGAIN_S = 1.0  # after the spool could not be read
_READ_AHEAD = 100


class Mark:
    """What was queued when a flush began: the entries before a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_complete = True  # none of them was given up without an answer


class Outbox:
    """Items in the order in which they were queued. Those in flight stay at the head until they are answered."""

    def __init__(self, path: str, queue_max: int, batch_max: int, spool: Spool | None = None) -> None:
        self.path = path
        self.spool = spool
        self.attempts = 0  # since the last answer that settled anything
        self.held_until = 0.0
        self.send_at = NEVER  # when a batch that is not full is sent
        self.search_again()
        self.in_flight = 0
        self.dropped = 0  # because the queue was full
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._full = min(batch_max, queue_max)  # is sent at once
        self._batch_limit = batch_max  # halved by each 413, doubled by each 202
        self._memory: deque[Entry] = deque()
        self._entered = 0  # numbers the entries
        self._flushed = 0  # Entries before this number are sent without delay.
        self._marks: list[Mark] = []

    def __len__(self) -> int:
        return len(self._memory) + (self.spool.unread if self.spool else 0)

    def add(self, entry: Entry) -> list[Entry]:
        """Queue an entry; return those that had to go for it, which may be the entry itself."""
        dropped: list[Entry] = []
        must_wait = False
        if self.spool is not None:
            freed = 0  # As many bytes as the entry needs, even if there were too many: no call pays for others.
            while freed < len(entry.body) and not self.spool.has_room_for(entry):
                oldest = self._drop_oldest()
                if oldest is None:
                    self.dropped += 1
                    return [*dropped, entry]
                freed += len(oldest.body)
                dropped.append(oldest)
            must_wait = self.spool.unread > 0 or len(self._memory) >= self._queue_max
            must_wait = self.spool.append(entry, is_read=not must_wait) and must_wait
        if not must_wait:
            self._enter_new(entry)
            oldest = self._drop_oldest() if len(self._memory) > self._queue_max else None
            dropped += [] if oldest is None else [oldest]
        return dropped

    def is_news(self, send_at: float) -> bool:
        """Return whether the entry just added changes what is due: a first one is sent at the given time."""
        if self.send_at == NEVER:
            self.send_at = send_at
            return True
        return len(self) in {1, self._full}

    def due_at(self, now: float, *, is_closing: bool) -> float:
        """Return when there is something to do: `NEVER` if there is nothing."""
        adopt_at = self.adopt_at if self.wants_more else NEVER
        if is_closing and adopt_at > now:
            adopt_at = NEVER  # The last search is over.
        if not len(self):
            return adopt_at
        is_ready = is_closing or len(self) >= self._full or not self._is_answered(self._flushed)
        send_at = now if is_ready or self.send_at == NEVER else self.send_at
        return min(adopt_at, max(self.held_until, send_at))

    def search_again(self) -> None:
        """Look once more for what others left in the spool."""
        self.adopt_at = NEVER if self.spool is None else -NEVER  # when to look

    @property
    def wants_more(self) -> bool:
        """Whether everything on disk has been read, so that what others left there has its turn."""
        return self.spool is not None and not self.spool.unread

    def take_batch(self, now_ms: int, now: float) -> tuple[list[Entry], list[Entry]]:
        """Return the batch to send, now in flight, and the entries that have expired."""
        self._refill(self._queue_max)
        if not self._memory and len(self):
            self.hold(now + _READ_AGAIN_S)
            return [], []
        batch: list[Entry] = []
        expired: list[Entry] = []
        size = 1
        for entry in self._memory:
            if entry.has_expired(now_ms - EXPIRES_AFTER_MS):
                expired.append(entry)
                continue
            size += len(entry.body) + SENT_AT_BYTES + 1
            if len(batch) == self._batch_limit or size > BODY_BYTES_MAX:
                break
            batch.append(entry)
        if expired:
            for _ in range(len(batch) + len(expired)):
                self._memory.popleft()
            self._memory.extendleft(reversed(batch))
            self._give_up(expired)
        self.in_flight = len(batch)
        self.send_at = now if len(self) > len(batch) else NEVER
        return batch, expired

    def settle(self, batch: Sequence[Entry]) -> None:
        """Remove a batch that was answered for good."""
        for _ in batch:
            self._memory.popleft()
        self.in_flight = 0
        self.attempts = 0
        self._settle(batch)

    def grow_batches(self) -> None:
        self._batch_limit = min(self._batch_limit * 2, self._batch_max)

    def halve(self, batch: Sequence[Entry]) -> None:
        """Keep the batch, and send half of it next."""
        self._batch_limit = max(len(batch) // 2, 1)
        self.in_flight = 0
        self.send_at = 0.0

    def hold(self, until: float) -> None:
        """Keep the batch until a time."""
        self.in_flight = 0
        self.held_until = until
        self.send_at = 0.0

    def mark(self) -> Mark:
        """Send everything queued so far without delay; return a mark to ask `is_answered` for, and to remove."""
        self._flushed = self._entered + (self.spool.unread if self.spool else 0)
        self._marks.append(Mark(self._flushed))
        return self._marks[-1]

    def remove_mark(self, mark: Mark) -> None:
        self._marks.remove(mark)

    def is_answered(self, mark: Mark) -> bool:
        """Return whether nothing from before the mark is left."""
        return self._is_answered(mark.number)

    def clear(self) -> list[Entry]:
        """Give up everything in memory; what is on disk stays there."""
        entries = list(self._memory)
        self._memory.clear()
        self.in_flight = 0
        return entries

    def end(self) -> tuple[list[Entry], int]:
        """Stop for good; return the entries that are lost, and how many stay on disk."""
        on_disk = self.spool.unread if self.spool else 0
        entries = self.clear()
        lost = [entry for entry in entries if entry.segment is None]
        if self.spool is not None:
            self.spool.close()
        return lost, on_disk + len(entries) - len(lost)

    def _is_answered(self, number: int) -> bool:
        return not len(self) or (bool(self._memory) and self._memory[0].number >= number)

    def _enter(self, entry: Entry) -> None:
        entry.number = self._entered
        self._memory.append(entry)
        self._entered += 1

    def _enter_new(self, entry: Entry) -> None:
        try:
            self._enter(entry)
        except BaseException:  # of a signal handler: an entry that is only on disk would wait for the next start
            if not self._memory or self._memory[-1] is not entry:
                self._settle([entry])
            raise

    def _drop_oldest(self) -> Entry | None:
        """Remove the oldest entry that is not in flight."""
        if len(self._memory) == self.in_flight:
            self._refill(self.in_flight + _READ_AHEAD)
        if len(self._memory) == self.in_flight:
            return None
        entry = self._memory[self.in_flight]
        self._give_up([entry])
        del self._memory[self.in_flight]
        self.dropped += 1
        return entry

    def _refill(self, count: int) -> None:
        if self.spool is None or not self.spool.unread:
            return
        lost = self.spool.lost
        for entry in self.spool.read(count - len(self._memory)):
            self._enter(entry)
        if self.spool.lost > lost:
            for mark in self._marks:
                mark.is_complete = False

    def _give_up(self, entries: Sequence[Entry]) -> None:
        self._settle(entries)
        for mark in self._marks:
            mark.is_complete &= not any(entry.number < mark.number for entry in entries)

    def _settle(self, entries: Sequence[Entry]) -> None:
        if self.spool is not None:
            self.spool.settle(entries)
