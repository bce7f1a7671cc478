"""Group commit: many requests, one transaction at a time, from one queue per organization."""

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heapreplace
from typing import Final, NamedTuple

from mauve.stores import StoreUnavailableError, UnconfirmedError
from mauve.stores.ledger import Entry, Outcome
from mauve.stores.ledger.writer import LedgerWriter


class QueuedEntry(NamedTuple):
    entry: Entry
    outcomes: asyncio.Future[list[Outcome]]
    queued_at: float  # on the monotonic clock

    @property
    def rows(self) -> int:
        """Return the cost of the entry; even one without payments and versions is not free."""
        return max(1, len(self.entry.payments) + len(self.entry.subscriptions))


class FairQueue:
    """Each queue keeps the order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[QueuedEntry]] = {}  # the next to be served first; none is empty
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, org_id: str, waiting: QueuedEntry) -> None:
        self._queues.setdefault(org_id, deque()).append(waiting)
        self._count += 1

    def take(self, rows_max: int) -> list[QueuedEntry]:
        """Remove and return entries of up to this number of rows in total, or a single larger one.

        The next entry always comes from the queue with the fewest rows taken so far, so a long queue or large entries
        cannot starve the others. Queues that were served move behind those that were not.
        """
        taken: list[QueuedEntry] = []
        rows_left = rows_max
        fairness = [(0, place, org_id) for place, org_id in enumerate(self._queues)]  # sorted, and thus a heap
        while fairness:
            rows_given, place, org_id = fairness[0]
            waiting = self._first_waiting(org_id)
            if waiting is None:
                heappop(fairness)
                continue
            if taken and waiting.rows > rows_left:
                break
            self._drop_first(org_id)
            taken.append(waiting)
            rows_left -= waiting.rows
            heapreplace(fairness, (rows_given + waiting.rows, place, org_id))
        for rows_given, _, org_id in sorted(fairness):
            if rows_given and org_id in self._queues:
                self._queues[org_id] = self._queues.pop(org_id)
        return taken

    def _first_waiting(self, org_id: str) -> QueuedEntry | None:
        """Return the first entry whose caller is still waiting."""
        while entries := self._queues.get(org_id):
            if not entries[0].outcomes.done():
                return entries[0]
            self._drop_first(org_id)
        return None

    def _drop_first(self, org_id: str) -> None:
        entries = self._queues[org_id]
        entries.popleft()
        self._count -= 1
        if not entries:
            del self._queues[org_id]


GROUP_ROWS_MAX: Final = 1_000  # payments and subscription versions: less than 0.1 s, and larger groups are not faster
WAITING_ENTRIES_MAX: Final = 5_000
_ENTRY_WEIGHT: Final = 1 / 8
_HELD_S_MAX: Final = 0.1
WAIT_S_MAX: Final = 8.0
_PAUSE_S: Final = 0.004  # longer than the polling interval of writers waiting for SQLite's lock


class GroupedLedger:
    """Records entries from coroutines of one event loop, in its own thread.

    - No timer: entries that arrive during a transaction form the next group.
    - Organizations are served round-robin; each one's entries are recorded in order of arrival.
    - Consecutive groups regularly leave the lock to other processes.
    - If a group fails, all of its entries fail and none is recorded, unless the error is `UnconfirmedError`.
    - At most `WAITING_ENTRIES_MAX` entries wait: further ones are refused immediately.
    - An entry that has waited for `WAIT_S_MAX` fails: an unresponsive server must not keep clients waiting.
    """

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._queue = FairQueue()
        self._work: asyncio.Task[None] | None = None
        self._closed = False
        self._entry_s = 0.0

    @property
    def entry_s(self) -> float:
        """Return the recent time to record one entry."""
        return self._entry_s

    async def record(self, entry: Entry, org_id: str = "") -> list[Outcome]:
        """Return once the entry is durable. If the caller stops waiting, the outcome is unknown."""
        if self._closed:
            raise StoreUnavailableError("the ledger is closed")
        if len(self._queue) >= WAITING_ENTRIES_MAX:
            raise StoreUnavailableError("too many requests are waiting for the ledger")
        waiting = QueuedEntry(entry, asyncio.get_running_loop().create_future(), time.monotonic())
        self._queue.append(org_id, waiting)
        if self._work is None:
            self._work = asyncio.create_task(self._record_all())
        return await waiting.outcomes

    async def close(self) -> None:
        """Record the waiting entries, accept no more, and close the writer."""
        if self._closed:
            return
        self._closed = True
        if self._work is not None:
            await asyncio.wait({self._work})
        await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.close)
        self._thread.shutdown()

    async def _record_all(self) -> None:
        held_s = 0.0
        try:
            while group := self._queue.take(GROUP_ROWS_MAX):
                held_s += await self._record_group(group)
                if self._queue and held_s > _HELD_S_MAX:
                    await asyncio.sleep(_PAUSE_S)
                    held_s = 0.0
        finally:
            self._work = None

    async def _record_group(self, group: list[QueuedEntry]) -> float:
        """Return how long it took."""
        began = time.monotonic()
        group = [waiting for waiting in group if not _has_expired(waiting, began)]
        if not group:
            return 0.0
        entries = [waiting.entry for waiting in group]
        try:
            outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.record, entries)
        except Exception as error:  # noqa: BLE001 - every caller must get an answer
            for waiting in group:
                _fail(waiting, error)
            return time.monotonic() - began
        took_s = time.monotonic() - began
        self._entry_s += (took_s / len(group) - self._entry_s) * _ENTRY_WEIGHT
        for waiting, of_entry in zip(group, outcomes, strict=True):
            if not waiting.outcomes.done():
                waiting.outcomes.set_result(of_entry)
        return took_s


def _has_expired(waiting: QueuedEntry, now: float) -> bool:
    """Fail an entry that has waited too long; return whether it did."""
    if now - waiting.queued_at <= WAIT_S_MAX:
        return False
    _fail(waiting, StoreUnavailableError("the ledger did not answer in time"))
    return True


def _fail(waiting: QueuedEntry, error: Exception) -> None:
    """Give each caller its own error: one raised many times would accumulate tracebacks."""
    if waiting.outcomes.done():
        return
    reason = str(error) if isinstance(error, StoreUnavailableError) else f"unexpected {type(error).__name__}"
    own = (UnconfirmedError if isinstance(error, UnconfirmedError) else StoreUnavailableError)(reason)
    own.__cause__ = error
    waiting.outcomes.set_exception(own)
