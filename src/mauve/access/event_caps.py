"""Whether an organization may ingest now: its standing and its event cap, without asking the core.

The count of a billing period is the sum of the events that the ledger has counted, those that every process has
accepted after the log positions of that count, and those in flight in this process. Organizations without a cap cost
nothing here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

import structlog

from mauve.access.keyring import Keyring
from mauve.core.accepted import AcceptedCounts, OrgPeriod, events_after
from mauve.core.batch import HEADER_BYTES_MAX, MalformedBatchError, unpacked
from mauve.core.clock import Clock
from mauve.core.organization import Standing, standing_at
from mauve.core.problems import Code, Problem
from mauve.core.window import period_ends_at, period_of
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger.usage import UsageReader
from mauve.stores.limits.accepted import AcceptedExchange, CountedUsage
from mauve.stores.log import MIXED_STREAM, LogRecord, number_of, stream_of
from mauve.stores.published import PublishedOrganization

REFRESH_EVERY_S: Final = 0.25
# Bound one step of a recount: the usage of other processes must be read in between.
RECOUNT_RECORDS_MAX: Final = 20_000
RECOUNT_BYTES_MAX: Final = 64 * 2**20
_NOTHING_COUNTED: Final = CountedUsage("", {}, {}, (), 0)

ReadRecords = Callable[[int, int], Iterator[LogRecord]]  # after, through

log = structlog.get_logger()


class OwnStream(NamedTuple):
    """The log stream that only this process writes."""

    number: int
    last_number: Callable[[], int]  # that no durable record exceeds and every later record will
    records: ReadRecords


class UsageSnapshot(NamedTuple):
    """Events counted outside this process, at one moment."""

    events: Counter[OrgPeriod]
    positions: Mapping[int, int]  # The events include each stream up to here.
    is_new: bool  # The ledger was read for it.


class OtherUsage:
    """Read the ledger and the counts that other processes share. Used from one thread at a time.

    While the ledger cannot be read, its last count stands, and newly accepted events are still added to it.
    """

    def __init__(self, usage: UsageReader, exchange: AcceptedExchange) -> None:
        self._usage = usage
        self._exchange = exchange
        self._counted = _NOTHING_COUNTED
        self._mixed = AcceptedCounts()
        self._mixed_orgs: frozenset[str] = frozenset()  # the organizations whose records of the mixed stream are in it
        self._is_current = True

    def read(self, capped: frozenset[str], period: str) -> UsageSnapshot:
        others = self._exchange.others()  # before the ledger, which then has what their owners have dropped
        is_new = self._read_ledger(capped, period)
        positions = self._counted.positions
        events = events_after(positions, [*others, (MIXED_STREAM, self._mixed)])
        if self._counted.period == period:
            events.update({OrgPeriod(org_id, period): count for org_id, count in self._counted.events.items()})
        return UsageSnapshot(events, positions, is_new)

    def _read_ledger(self, capped: frozenset[str], period: str) -> bool:
        knows_mixed = capped <= self._mixed_orgs
        try:
            counted = self._usage.counted(period, capped, self._counted.mixed_through if knows_mixed else 0)
        except StoreUnavailableError as error:
            if self._is_current:
                log.warning("usage_unreadable", reason=str(error), advice="caps continue from the last count")
            self._is_current = False
            return False
        self._counted, self._is_current = counted, True
        self._mixed = self._mixed if knows_mixed else AcceptedCounts()
        self._mixed_orgs = capped
        self._mixed.keep_only(capped)
        self._mixed.drop_loaded(counted.positions.get(MIXED_STREAM, 0))
        for number, org_period, events in counted.mixed:
            self._mixed.add(org_period, number, events)
        return True


class Recount:
    """Count the events of some organizations in our own stream again, up to a record number.

    Needed after a process died without sharing its counts, and for events accepted before a cap was set.
    """

    def __init__(self, org_ids: frozenset[str], through: int) -> None:
        self.org_ids = org_ids
        self.through = through
        self.found = AcceptedCounts()
        self.is_done = False
        self._records: Iterator[LogRecord] | None = None

    def count_more(self, records: ReadRecords, position: int) -> None:
        self._records = self._records or records(position, self.through)
        size = 0
        for _ in range(RECOUNT_RECORDS_MAX):
            record = next(self._records, None)
            if record is None:
                self.is_done = True
                return
            self._count(record)
            size += len(record.payload)
            if size > RECOUNT_BYTES_MAX:
                return

    def _count(self, record: LogRecord) -> None:
        try:
            batch = unpacked(record.payload[:HEADER_BYTES_MAX])
        except MalformedBatchError:
            return  # The loader will not count it either.
        if batch.org_id in self.org_ids:
            self.found.add(OrgPeriod(batch.org_id, period_of(batch.received_at)), record.number, batch.event_count)


class _RefreshJob(NamedTuple):
    """The input of one refresh, copied for the thread that runs it."""

    capped: frozenset[str]
    period: str
    accepted: dict[int, AcceptedCounts]
    recorded: Counter[OrgPeriod]
    recount: Recount | None


class EventCaps:
    """The counts belong to the event loop. A thread reads the usage elsewhere; its result is applied in one step.

    Without a stream of its own (`stream` is None), a process writes streams that hold the records of all processes, and
    cannot recount them. Until the loader counts them, the events are missing that a process accepted within
    `REFRESH_EVERY_S` of its death, or before a cap was set.
    """

    def __init__(
        self, stream: OwnStream | None, keyring: Keyring, usage: UsageReader, exchange: AcceptedExchange, clock: Clock
    ) -> None:
        self._stream = stream
        self._keyring = keyring
        self._exchange = exchange
        self._clock = clock
        self._other_usage = OtherUsage(usage, exchange)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-caps")
        self._capped: frozenset[str] | None = None  # None before the first refresh
        self._elsewhere: Counter[OrgPeriod] = Counter()
        self._accepted = exchange.own()  # by stream: at first what the previous process shared, until recounted
        self._positions: Mapping[int, int] = {}  # Each stream is loaded up to here; `_accepted` starts after it.
        self._own: Counter[OrgPeriod] = Counter()  # the sums of `_accepted`
        self._pending: Counter[OrgPeriod] = Counter()  # in flight, or recorded since we last read the ledger
        self._recorded: Counter[OrgPeriod] = Counter()  # the recorded part of `_pending`
        self._recount: Recount | None = None
        self._is_current = True
        self._is_shared = True
        self._recounted: dict[str, int] = {}  # organization → record number up to which our stream was recounted

    def events(self, org_period: OrgPeriod) -> int:
        return self._elsewhere[org_period] + self._own[org_period] + self._pending[org_period]

    def reserve(self, org_period: OrgPeriod, events: int) -> None:
        """Start counting events that are about to be appended to the log."""
        self._pending[org_period] += events

    def cancel(self, org_period: OrgPeriod, events: int) -> None:
        """Stop counting reserved events that did not reach the log."""
        self._pending[org_period] -= events

    def commit(self, org_period: OrgPeriod, events: int, place: int) -> None:
        """Count reserved events under the place of the record that holds them."""
        self._pending[org_period] -= events
        stream, number = stream_of(place), number_of(place)
        if number > self._positions.get(stream, 0) and number > self._recounted.get(org_period.org_id, 0):
            self._accepted.setdefault(stream, AcceptedCounts()).add(org_period, number, events)
            self._own[org_period] += events

    @contextmanager
    def recording(self, org_period: OrgPeriod, events: int) -> Iterator[None]:
        """Count events that the ledger records in the block, until the ledger is read again."""
        self.reserve(org_period, events)
        try:
            yield
        except BaseException:
            self.cancel(org_period, events)
            raise
        self._recorded[org_period] += events

    async def refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_EVERY_S)
            job = self._prepare_refresh()
            if job is not None:
                loop = asyncio.get_running_loop()
                self._apply(job, await loop.run_in_executor(self._thread, self._read_usage, job))

    def refresh(self) -> None:
        """Read the usage elsewhere once. If that fails, keep the counts until the next refresh."""
        job = self._prepare_refresh()
        if job is not None:
            self._apply(job, self._read_usage(job))

    def close(self) -> None:
        """Share our counts, from which the next process of this stream starts."""
        self._thread.shutdown()
        self._share(self._accepted)

    def _prepare_refresh(self) -> _RefreshJob | None:
        """Return the next job, or None if no organization has a cap, or had one at the last refresh."""
        before, capped = self._capped, self._organizations_with_a_cap()
        self._capped = capped
        if not capped and not before and not any(self._accepted.values()):
            return None
        for accepted in self._accepted.values():
            accepted.keep_only(capped)
        self._prepare_recount(capped, before)
        recorded, self._recorded = self._recorded, Counter()
        accepted_now = {stream: accepted.copy() for stream, accepted in self._accepted.items()}
        return _RefreshJob(capped, period_of(self._clock.now_ms()), accepted_now, recorded, self._recount)

    def _prepare_recount(self, capped: frozenset[str], before: frozenset[str] | None) -> None:
        if self._stream is None:
            return
        self._recounted = {org_id: number for org_id, number in self._recounted.items() if org_id in capped}
        if self._recount is None or not self._recount.org_ids <= capped:
            # An organization whose cap is new may have uncounted requests in flight: recount it at the next refresh.
            missing = (capped if before is None else capped & before) - self._recounted.keys()
            self._recount = Recount(missing, self._stream.last_number()) if missing else None

    def _organizations_with_a_cap(self) -> frozenset[str]:
        organizations = list(self._keyring.organizations.values())  # a copy: another thread may add to them
        return frozenset(each.org_id for each in organizations if each.event_cap is not None)

    def _read_usage(self, job: _RefreshJob) -> UsageSnapshot | None:
        """Return the usage elsewhere, or None if it cannot be read now. Runs in the thread."""
        try:
            self._share(job.accepted)
            snapshot = self._other_usage.read(job.capped, job.period)
            if self._stream is not None and job.recount is not None:
                job.recount.count_more(self._stream.records, snapshot.positions.get(self._stream.number, 0))
        except Exception as error:  # noqa: BLE001 - whatever failed, the next refresh may succeed
            if self._is_current:
                log.warning("caps_not_refreshed", reason=str(error), advice=f"trying again every {REFRESH_EVERY_S} s")
            return None
        return snapshot

    def _share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        try:
            self._exchange.share(accepted)
        except StoreUnavailableError as error:
            if self._is_shared:
                advice = "the other processes count without this one"
                log.warning("accepted_not_shared", reason=str(error), advice=advice)
            self._is_shared = False
        else:
            self._is_shared = True

    def _apply(self, job: _RefreshJob, snapshot: UsageSnapshot | None) -> None:
        """Replace all counts at once: no event may be missed or counted twice in between."""
        self._is_current = snapshot is not None
        if snapshot is not None and snapshot.is_new:
            self._pending -= job.recorded  # which drops entries that have reached zero
        else:
            self._recorded += job.recorded
        if snapshot is None:
            self._recount = None
            return
        self._elsewhere, self._positions = snapshot.events, snapshot.positions
        if self._stream is not None and self._recount is not None and self._recount.is_done:
            recount, self._recount = self._recount, None
            own = self._accepted.setdefault(self._stream.number, AcceptedCounts())
            own.correct(recount.org_ids, recount.through, recount.found)
            self._recounted |= dict.fromkeys(recount.org_ids, recount.through)
        for stream, accepted in self._accepted.items():
            accepted.drop_loaded(snapshot.positions.get(stream, 0))
        self._own = events_after(snapshot.positions, self._accepted.items())


def is_suspended(organization: PublishedOrganization | None, now_ms: int) -> bool:
    """Return whether an organization is suspended. One that is not published yet is not."""
    if organization is None:
        return False
    return standing_at(organization.standing, organization.grace_ends_at, now_ms) is Standing.SUSPENDED


def check_standing(organization: PublishedOrganization | None, now_ms: int) -> None:
    if is_suspended(organization, now_ms):
        raise Problem(
            Code.INGEST_SUSPENDED,
            "ingest is suspended: settle the open invoice or restart the subscription, then send again",
        )


def check_cap(cap: int, events: int, now_ms: int) -> None:
    if events >= cap:
        raise Problem(
            Code.EVENT_CAP_REACHED,
            "the event cap of this billing period is reached: raise the cap, or wait until it resets",
            cap_events=cap,
            resets_at=period_ends_at(now_ms),
        )
