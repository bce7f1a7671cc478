"""Processes that accept events of an organization with a cap, in one event loop, over real stores."""

import asyncio
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

from mauve.access.event_caps import EventCaps, OwnStream
from mauve.access.keyring import Keyring
from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.core.batch import packed_header, unpacked
from mauve.core.organization import Standing
from mauve.core.window import period_of
from mauve.stores.ledger import Entry, LoadStep
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.usage import UsageReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.limits.accepted import AcceptedExchange, FileAcceptedCounts
from mauve.stores.log import MIXED_STREAM
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.published import Changes, PublishedOrganization
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.clocks import ManualClock

ORG = "org_1"
SEGMENT_BYTES = 2**15
BYTES_MAX = 2**30


class World:
    """The stores that the processes share, and a loader that runs on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.database = Database(sqlite_url(folder / "ledger.db"), busy_timeout_s=30)
        migrate(self.database, LEDGER)
        self.published: list[PublishedOrganization] = []
        self._ledger = LoadLedger(self.database)
        self._writer = LedgerWriter(self.database)
        self._log = SegmentLogReader(folder / "log")

    def close(self) -> None:
        self.database.close()

    def set_cap(self, cap: int | None, org_id: str = ORG) -> None:
        self.published.append(PublishedOrganization(org_id, Standing.LIVE, None, cap, 600, 1, 1))

    def changes_since(self, revision: int) -> Changes:
        return Changes(list(self.published[revision:]), len(self.published))

    def load(self, stream: int, records_max: int = 10**9, repeats: int = 0) -> int:
        """Load records of a stream as the loader does, with `repeats` of their events being repeats."""
        after = self._ledger.positions().get(stream, 0)
        read = self._ledger.read_events if stream == MIXED_STREAM else lambda *where: self._log.read(stream, *where)
        records = read(after, BYTES_MAX)[:records_max]
        counts: dict[tuple[str, str], int] = {}
        for record in records:
            batch = unpacked(record.payload)
            key = (batch.org_id, period_of(batch.received_at))
            left_out = min(repeats, batch.event_count)
            repeats -= left_out
            counts[key] = counts.get(key, 0) + batch.event_count - left_out
        if records:
            before = self._ledger.positions()
            self._ledger.finish(LoadStep({stream: records[-1].number}, counts, positions_before=before))
            if stream == MIXED_STREAM:
                self._ledger.trim_events(records[-1].number)
            else:
                self._log.trim(stream, records[-1].number)
        return len(records)

    def record(self, entry: Entry) -> None:
        self._writer.record([entry])


class SharedStreams:
    """Streams that hold the records of all processes, in turn, and the counts that these processes share."""

    def __init__(self, world: World, streams: tuple[int, ...]) -> None:
        self._writers = [SegmentLogWriter(world.folder / "log", each, segment_bytes=SEGMENT_BYTES) for each in streams]
        self._next = cycle(self._writers)
        self.shared: dict[int, dict[int, AcceptedCounts]] = {}

    async def append(self, parts: tuple[bytes, ...]) -> int:
        return await next(self._next).append(parts)

    async def close(self) -> None:
        """Nothing: it outlives the processes."""

    async def end(self) -> None:
        for writer in self._writers:
            await writer.close()


class MemoryExchange:
    """An exchange among the processes of these streams."""

    def __init__(self, streams: SharedStreams, process: int) -> None:
        self._shared = streams.shared
        self._process = process

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        self._shared[self._process] = {stream: counts.copy() for stream, counts in accepted.items()}

    def own(self) -> dict[int, AcceptedCounts]:
        return {stream: counts.copy() for stream, counts in self._shared.get(self._process, {}).items()}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        others = (counts for process, counts in self._shared.items() if process != self._process)
        return [(stream, accepted) for counts in others for stream, accepted in counts.items()]


class Process:
    """A process with its own stream, or with streams that it shares. `events` counts all that it has accepted."""

    def __init__(self, world: World, stream: int, streams: SharedStreams | None = None) -> None:
        self.world = world
        self.events = 0
        self._stream, self._streams = stream, streams
        root = world.folder / "log"
        self.log: SharedStreams | SegmentLogWriter
        self.exchange: AcceptedExchange
        if streams is None:
            self.log = SegmentLogWriter(root, stream, segment_bytes=SEGMENT_BYTES)
            self.exchange = FileAcceptedCounts(world.folder / "accepted", stream)
            reader = SegmentLogReader(root)
            records = lambda after, through: reader.records(stream, after, through)  # noqa: E731 - found at every call
            own = OwnStream(stream, self.log.last_number, records)
        else:
            self.log, self.exchange, own = streams, MemoryExchange(streams, stream), None
        self.keyring = Keyring(world.changes_since)
        self.keyring.refresh()
        self.caps = EventCaps(own, self.keyring, UsageReader(world.database), self.exchange, world.clock)
        self.caps.refresh()

    @property
    def known(self) -> int:
        return self.caps.events(self.org_period())

    def org_period(self, org_id: str = ORG) -> OrgPeriod:
        return OrgPeriod(org_id, period_of(self.world.clock.now_ms()))

    def refresh(self) -> None:
        self.keyring.refresh()
        self.caps.refresh()

    async def offer(self, events: int, org_id: str = ORG) -> bool:
        """Accept a batch unless the cap is reached, in the steps of the ingest plane; return whether."""
        cap = self.keyring.organizations[org_id].event_cap
        org_period = self.org_period(org_id)
        if cap is not None and self.caps.events(org_period) >= cap:
            return False
        header = packed_header("proj_1", org_id, self.world.clock.now_ms(), self.world.clock.now_us(), events)
        if cap is not None:
            self.caps.reserve(org_period, events)
        number = await self.log.append((header, b"{}"))
        if cap is not None:
            self.caps.commit(org_period, events, number)
        self.events += events
        return True

    async def offer_with_payments(self, events: int) -> bool:
        """Do the same for a batch that goes through the ledger; its payments are left out."""
        org_period = self.org_period()
        cap = self.keyring.organizations[ORG].event_cap
        assert cap is not None
        if self.caps.events(org_period) >= cap:
            return False
        header = packed_header("proj_1", ORG, self.world.clock.now_ms(), self.world.clock.now_us(), events)
        with self.caps.recording(org_period, events):
            await asyncio.to_thread(self.world.record, Entry(events=header + b"{}"))
        self.events += events
        return True

    async def die(self) -> None:
        """Stop without sharing the counts."""
        await self.log.close()

    async def restarted(self) -> "Process":
        await self.die()
        process = Process(self.world, self._stream, self._streams)
        process.events = self.events
        return process

    async def stop(self) -> None:
        await self.die()
        self.caps.close()
