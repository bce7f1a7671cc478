"""Group commit: many requests, one transaction at a time."""

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from mauve.stores.ledger import Entry, LedgerWriter, Outcome
from mauve.stores.unavailable import StoreUnavailableError

GROUP_ENTRIES_MAX: Final = 1_000
GROUP_ITEMS_MAX: Final = 10_000  # payments and subscription versions
WAITING_ENTRIES_MAX: Final = 5_000
_ENTRY_WEIGHT: Final = 1 / 8


class _Waiting(NamedTuple):
    entry: Entry
    outcomes: asyncio.Future[list[Outcome]]


class GroupedLedger:
    """Records from coroutines of one event loop, in a thread of its own.

    - No timer: entries that arrive while a transaction is under way form the next group, in the order of arrival.
    - What fails a group fails each of its entries, and none of them is recorded.
    - More than `WAITING_ENTRIES_MAX` entries do not wait: the next one is refused at once.
    """

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._waiting: deque[_Waiting] = deque()
        self._work: asyncio.Task[None] | None = None
        self._closed = False
        self._entry_s = 0.0

    @property
    def entry_s(self) -> float:
        """Return how long recording one entry takes, lately."""
        return self._entry_s

    async def record(self, entry: Entry) -> list[Outcome]:
        """Return when the entry is durable. Who stops waiting does not know whether it was recorded."""
        if self._closed:
            raise StoreUnavailableError("the ledger is closed")
        if len(self._waiting) >= WAITING_ENTRIES_MAX:
            raise StoreUnavailableError("too many requests wait for the ledger")
        waiting = _Waiting(entry, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._work is None:
            self._work = asyncio.create_task(self._record_all())
        return await waiting.outcomes

    async def close(self) -> None:
        """Record what still waits, take no more, and close the writer."""
        if self._closed:
            return
        self._closed = True
        if self._work is not None:
            await asyncio.wait({self._work})
        await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.close)
        self._thread.shutdown()

    async def _record_all(self) -> None:
        try:
            while group := self._next_group():
                await self._record_group(group)
        finally:
            self._work = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        items = 0
        while self._waiting and len(group) < GROUP_ENTRIES_MAX:
            if self._waiting[0].outcomes.done():  # nobody waits for it any more
                self._waiting.popleft()
                continue
            items += _items_in(self._waiting[0].entry)
            if group and items > GROUP_ITEMS_MAX:
                break
            group.append(self._waiting.popleft())
        return group

    async def _record_group(self, group: list[_Waiting]) -> None:
        entries = [waiting.entry for waiting in group]
        began = time.monotonic()
        try:
            outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.record, entries)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
            for waiting in group:
                _fail(waiting, error)
            return
        self._entry_s += ((time.monotonic() - began) / len(group) - self._entry_s) * _ENTRY_WEIGHT
        for waiting, of_entry in zip(group, outcomes, strict=True):
            if not waiting.outcomes.done():
                waiting.outcomes.set_result(of_entry)


def _items_in(entry: Entry) -> int:
    return len(entry.payments) + len(entry.subscriptions)


def _fail(waiting: _Waiting, error: Exception) -> None:
    """Give everyone an error of their own: one that is raised many times grows a traceback without end."""
    if waiting.outcomes.done():
        return
    reason = str(error) if isinstance(error, StoreUnavailableError) else f"unexpected {type(error).__name__}"
    own = StoreUnavailableError(reason)
    own.__cause__ = error
    waiting.outcomes.set_exception(own)
