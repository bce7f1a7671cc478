"""Wires the ingest plane of one process: keyring, log, ledger, limits. Imports nothing that only the core needs."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry

from mauve.access.event_caps import EventCaps
from mauve.access.keyring import CURRENT_S, Keyring
from mauve.config import Settings
from mauve.core.clock import Clock, SystemClock
from mauve.ingest import IngestParts
from mauve.ingest.publishable import PublishableLimits
from mauve.ingest.stats import IngestCounters
from mauve.overload.admission import Admission, ByteBudget, LoopFairness
from mauve.stores.catalog.published import CHANNEL, Published
from mauve.stores.data_directory import has_room
from mauve.stores.ledger.group_commit import GroupedLedger
from mauve.stores.ledger.usage import UsageReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.limits.accepted import AcceptedExchange, FileAcceptedCounts
from mauve.stores.limits.presence import Presence, beat_in_files
from mauve.stores.sql.processes import SqlAcceptedCounts, beat_in_database
from mauve.wiring.bootstrap import open_vault
from mauve.wiring.cluster import is_shared, machine_of
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.log import open_log_writer
from mauve.wiring.paths import accepted_path, snapshot_path

_POLL_STATEMENT_S: Final = 2.0
_BODIES_BYTES_MAX: Final = 12 * 1024 * 1024
T = TypeVar("T")


@contextmanager
def open_accepted_exchange(settings: Settings, process: int) -> Iterator[AcceptedExchange]:
    if settings.stream_url is None:
        yield FileAcceptedCounts(accepted_path(settings.data), process)
        return
    with closing(open_catalog_database(settings)) as database:
        yield SqlAcceptedCounts(database, f"{machine_of(settings)}.{process}")


@contextmanager
def open_presence(settings: Settings, process: int) -> Iterator[Callable[[], int]]:
    """Yield a function that records a use of a shared limit and counts the processes of all machines that use it."""
    if settings.stream_url is None:
        beat = partial(beat_in_files, accepted_path(settings.data), process)
        with closing(Presence(beat, is_local=True)) as presence:
            yield presence.use
        return
    with closing(open_catalog_database(settings)) as database:
        beat = partial(beat_in_database, database, f"{machine_of(settings)}.{process}")
        with closing(Presence(beat, is_local=False)) as presence:
            yield presence.use


@asynccontextmanager
async def ingest_parts(
    settings: Settings, stream: int, registry: CollectorRegistry, clock: Clock | None = None
) -> AsyncIterator[IngestParts]:
    """Open the parts of one process's ingest plane, on a prepared data directory."""
    vault = open_vault(settings)
    async with off_loop(open_presence(settings, stream)) as share_use:
        with (
            open_keyring(settings, stream) as keyring,
            closing(open_ledger_database(settings)) as database,
            open_accepted_exchange(settings, stream) as exchange,
        ):
            log, own = await open_log_writer(settings, stream)
            ledger = GroupedLedger(LedgerWriter(database))
            fairness = LoopFairness()
            clock = clock or SystemClock()
            caps = EventCaps(own, keyring, UsageReader(database), exchange, clock)
            caps.refresh()
            try:
                yield IngestParts(
                    keyring=keyring,
                    caps=caps,
                    log=log,
                    ledger=ledger,
                    has_room=lambda: settings.database_url is not None or has_room(settings.data),
                    publishable_limits=PublishableLimits(
                        settings.publishable_events_per_s, settings.publishable_bytes_per_s, share_use
                    ),
                    vault=vault,
                    clock=clock,
                    admission=Admission(lambda: log.flush_s, lambda: fairness.round_s),
                    fairness=fairness,
                    budget=ByteBudget(_BODIES_BYTES_MAX),
                    counters=IngestCounters(registry, lambda: log.flush_s),
                )
            finally:
                await log.close()
                caps.close()
                await ledger.close()


@asynccontextmanager
async def off_loop(opening: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Open and close in a thread, so that network waits do not block the event loop."""
    opened = await asyncio.to_thread(opening.__enter__)
    try:
        yield opened
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


@contextmanager
def open_keyring(settings: Settings, process: int) -> Iterator[Keyring]:
    """Open the keyring, which follows the catalog over its own connections, on a prepared data directory."""
    # One connection waits for notices, one reads. Requests that wait for the pool must not delay a revocation.
    with closing(open_catalog_database(settings, statement_s=_POLL_STATEMENT_S, connections_max=2)) as database:
        keyring = Keyring(
            Published(database).changes_since,
            is_local=not database.is_server,
            age_s_max=CURRENT_S if is_shared(settings) else math.inf,
            snapshot=snapshot_path(settings.data, process),
        )
        keyring.refresh()
        with keyring.following(partial(database.wait_for_notice, CHANNEL)):
            yield keyring
