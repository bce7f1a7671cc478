"""The queue of one endpoint: the items in memory, those only on disk, and how long they are held.

Not thread-safe: every call is made under the lock of the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import merge

from mauve_metrics._items import SENT_AT_BYTES
from mauve_metrics._segment import Entry
from mauve_metrics._spool import Spool

BODY_BYTES_MAX = 921_600
EXPIRES_AFTER_MS = (7 * 24 - 1) * 3_600_000  # After seven days the service no longer knows the id.

NEVER = float("inf")
_READ_AGAIN_S = 1.0  # after the spool could not be read
_READ_AHEAD = 100


class Outbox:
    """Items in the order in which they were queued. Those in flight stay at the head until they are answered.

    They have two lanes, so that the oldest event can be dropped before any money: events, which expire, and the rest.
    """

    def __init__(self, path: str, queue_max: int, batch_max: int, spool: Spool | None = None) -> None:
        self.path = path
        self.spool = spool
        self.attempts = 0  # since the last answer that settled anything
        self.held_until = 0.0
        self.send_at = NEVER  # when a batch that is not full is sent
        self.search_again()
        self.dropped = 0  # because the queue was full
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._full = min(batch_max, queue_max)  # sent immediately
        self._batch_limit = batch_max  # halved by each 413, doubled by each 202
        self._lanes: tuple[deque[Entry], deque[Entry]] = deque(), deque()
        self._in_flight = [0, 0]  # at the head of each lane
        self._entered = 0  # numbers the entries
        self._flushed = 0  # Entries before this number are sent without delay.

    def __len__(self) -> int:
        return self._in_memory + (self.spool.unread if self.spool else 0)

    @property
    def has_room(self) -> bool:
        """Whether the next item takes the place of no other."""
        return self.spool.has_room if self.spool else self._in_memory < self._queue_max

    def add(self, entry: Entry) -> list[Entry]:
        """Queue an entry; return the entries dropped to make room, possibly including the new one."""
        dropped: list[Entry] = []
        must_wait = False
        if self.spool is not None:
            freed = 0  # Free only what this entry needs, even if the spool is over its limit: keep each call short.
            while freed < len(entry.body) and not self.spool.has_room_for(entry):
                oldest = self._drop_from_spool(entry)
                if oldest is None:
                    self.dropped += 1
                    return [*dropped, entry]
                freed += len(oldest.body)
                dropped.append(oldest)
            must_wait = self.spool.unread > 0 or self._in_memory >= self._queue_max
            must_wait = self.spool.append(entry, is_read=not must_wait) and must_wait
        if not must_wait:
            self._enter_new(entry)
            oldest = self._drop_oldest() if self._in_memory > self._queue_max else None
            dropped += [] if oldest is None else [oldest]
        return dropped

    def changes_schedule(self, send_at: float) -> bool:
        """Return whether the entry just added changes when something is due. A first one is due at `send_at`."""
        if self.send_at == NEVER:
            self.send_at = send_at
            return True
        return len(self) in {1, self._full}

    def due_at(self, now: float, *, is_closing: bool) -> float:
        """Return when something is due, or `NEVER`."""
        adopt_at = self.adopt_at if self.wants_more else NEVER
        if is_closing and adopt_at > now:
            adopt_at = NEVER  # The last search is over.
        if not len(self):
            return adopt_at
        is_ready = is_closing or len(self) >= self._full or not self.is_answered(self._flushed)
        send_at = now if is_ready or self.send_at == NEVER else self.send_at
        return min(adopt_at, max(self.held_until, send_at))

    def search_again(self) -> None:
        """Search the spool for abandoned files again."""
        self.adopt_at = NEVER if self.spool is None else -NEVER  # when to look

    @property
    def wants_more(self) -> bool:
        """Whether everything on disk has been read, so that abandoned files can be adopted."""
        return self.spool is not None and not self.spool.unread

    def take_batch(self, now_ms: int, now: float) -> tuple[list[Entry], list[Entry]]:
        """Return the batch to send, now in flight, and the entries that have expired."""
        self._refill(self._queue_max)
        if not self._in_memory and len(self):
            self.hold(now + _READ_AGAIN_S)
            return [], []
        batch: list[Entry] = []
        expired: list[Entry] = []
        size = 1
        for entry in merge(*self._lanes, key=_number):
            if entry.has_expired(now_ms - EXPIRES_AFTER_MS):
                expired.append(entry)
                continue
            size += len(entry.body) + SENT_AT_BYTES + 1
            if len(batch) == self._batch_limit or size > BODY_BYTES_MAX:
                break
            batch.append(entry)
        events = [entry for entry in batch if entry.does_expire]
        if expired:
            lane = self._lanes[0]
            for _ in range(len(events) + len(expired)):
                lane.popleft()
            lane.extendleft(reversed(events))
            self._settle(expired)
        self._in_flight = [len(events), len(batch) - len(events)]
        self.send_at = now if len(self) > len(batch) else NEVER
        return batch, expired

    def settle(self, batch: Sequence[Entry]) -> None:
        """Remove a batch that has its final answer."""
        for entry in batch:
            self._lane(entry).popleft()
        self._in_flight = [0, 0]
        self.attempts = 0
        self._settle(batch)

    def grow_batches(self) -> None:
        self._batch_limit = min(self._batch_limit * 2, self._batch_max)

    def halve(self, batch: Sequence[Entry]) -> None:
        """Keep the batch, and send half of it next."""
        self._batch_limit = max(len(batch) // 2, 1)
        self._in_flight = [0, 0]
        self.send_at = 0.0

    def hold(self, until: float) -> None:
        """Keep the batch until a time."""
        self._in_flight = [0, 0]
        self.held_until = until
        self.send_at = 0.0

    def mark(self) -> int:
        """Send everything queued so far without delay; return a number to pass to `is_answered`."""
        self._flushed = self._entered + (self.spool.unread if self.spool else 0)
        return self._flushed

    def is_answered(self, mark: int) -> bool:
        """Return whether nothing from before the mark is left."""
        heads = [lane[0].number for lane in self._lanes if lane]
        return not len(self) or (bool(heads) and min(heads) >= mark)

    def clear(self) -> list[Entry]:
        """Give up everything in memory; what is on disk stays there."""
        entries = list(merge(*self._lanes, key=_number))
        for lane in self._lanes:
            lane.clear()
        self._in_flight = [0, 0]
        return entries

    def end(self) -> tuple[list[Entry], int]:
        """Stop permanently; return the lost entries, and how many stay on disk."""
        on_disk = self.spool.unread if self.spool else 0
        entries = self.clear()
        lost = [entry for entry in entries if entry.segment is None]
        if self.spool is not None:
            self.spool.close()
        return lost, on_disk + len(entries) - len(lost)

    @property
    def _in_memory(self) -> int:
        return sum(map(len, self._lanes))

    def _lane(self, entry: Entry) -> deque[Entry]:
        return self._lanes[0 if entry.does_expire else 1]

    def _enter(self, entry: Entry) -> None:
        entry.number = self._entered
        self._lane(entry).append(entry)
        self._entered += 1

    def _enter_new(self, entry: Entry) -> None:
        try:
            self._enter(entry)
        except BaseException:  # of a signal handler: an entry that is only on disk would wait for the next start
            lane = self._lane(entry)
            if not lane or lane[-1] is not entry:
                self._settle([entry])
            raise

    def _drop_oldest(self) -> Entry | None:
        """Remove from memory the oldest event that is not in flight, or other item if there is no such event."""
        for lane, in_flight in zip(self._lanes, self._in_flight):
            if len(lane) > in_flight:
                entry = lane[in_flight]
                self._settle([entry])
                del lane[in_flight]
                self.dropped += 1
                return entry
        return None

    def _drop_from_spool(self, new: Entry) -> Entry | None:
        """Make room on disk by the same rule; None if the new entry is the one to drop."""
        if self.spool is None or len(self._lanes[0]) > self._in_flight[0]:
            return self._drop_oldest()
        event = self.spool.drop_event()
        if event is not None:
            self.dropped += 1
            return event
        if new.does_expire:
            return None
        if len(self._lanes[1]) == self._in_flight[1]:
            self._refill(self._in_memory + _READ_AHEAD)
        return self._drop_oldest()

    def _refill(self, count: int) -> None:
        if self.spool is not None and self.spool.unread:
            for entry in self.spool.read(count - self._in_memory):
                self._enter(entry)

    def _settle(self, entries: Sequence[Entry]) -> None:
        if self.spool is not None:
            self.spool.settle(entries)


def _number(entry: Entry) -> int:
    return entry.number
