"""Entries waiting for the ledger: one queue per organization, served round-robin."""

import asyncio
from collections import deque
from heapq import heappop, heapreplace
from typing import NamedTuple

from mauve.stores.ledger import Entry, Outcome


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
        self._queues: dict[str, deque[QueuedEntry]] = {}  # in the order of their turns; none is empty
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
