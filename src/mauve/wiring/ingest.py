"""Wires the ingest plane of one process: keyring, log, ledger, limits. Imports nothing that only the core needs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry

from mauve.access.confirmation import ConfirmKey, ConfirmSecret, KeyConfirmation, trust_keyring, trust_secret
from mauve.access.event_caps import EventCaps
from mauve.access.keyring import Keyring
from mauve.config import Settings
from mauve.core.clock import Clock, SystemClock
from mauve.ingest.counters import IngestCounters
from mauve.ingest.parts import IngestParts
from mauve.ingest.publishable import PublishableLimits
from mauve.overload.admission import Admission
from mauve.overload.byte_budget import ByteBudget
from mauve.overload.loop_fairness import LoopFairness
from mauve.stores.data_directory import has_room
from mauve.stores.sql.catalog.live_credentials import SqlLiveCredentials
from mauve.stores.sql.ledger.group_commit import GroupedLedger
from mauve.stores.sql.ledger.usage import SqlUsageReader
from mauve.stores.sql.ledger.writer import SqlLedgerWriter
from mauve.wiring.bootstrap import open_vault
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.edge import may_outlive_edge, open_accepted_exchange, open_edge_reader, open_presence
from mauve.wiring.log import open_log_writer

_BODIES_BYTES_MAX: Final = 12 * 1024 * 1024

T = TypeVar("T")


@asynccontextmanager
async def ingest_parts(
    settings: Settings, stream: int, registry: CollectorRegistry, clock: Clock | None = None
) -> AsyncIterator[IngestParts]:
    """Open the parts of one process's ingest plane, on a prepared data directory."""
    vault = open_vault(settings)
    async with off_loop(open_presence(settings, stream)) as share_use:
        with (
            closing(open_keyring(settings, stream)) as keyring,
            closing(open_ledger_database(settings)) as database,
            open_accepted_exchange(settings, stream) as exchange,
            open_confirmation(settings) as (confirm_key, confirm_secret),
        ):
            keyring.refresh()
            log, own = await open_log_writer(settings, stream)
            ledger = GroupedLedger(SqlLedgerWriter(database))
            fairness = LoopFairness()
            clock = clock or SystemClock()
            caps = EventCaps(own, keyring, SqlUsageReader(database), exchange, clock)
            caps.refresh()
            try:
                yield IngestParts(
                    keyring=keyring,
                    caps=caps,
                    log=log,
                    ledger=ledger,
                    has_room=lambda: settings.database_url is not None or has_room(settings.data),
                    confirm_key=confirm_key,
                    confirm_secret=confirm_secret,
                    publishable_limits=PublishableLimits.of_rates(
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
    """Open and close in a thread what waits for a network: the event loop goes on."""
    opened = await asyncio.to_thread(opening.__enter__)
    try:
        yield opened
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


def open_keyring(settings: Settings, process: int = 0) -> Keyring:
    """Open the keyring on the edge, on a prepared data directory."""
    return Keyring(open_edge_reader(settings, process))


@contextmanager
def open_confirmation(settings: Settings) -> Iterator[tuple[ConfirmKey, ConfirmSecret]]:
    """Yield how to confirm a key, or a webhook secret, before a write to the ledger, in the event loop of the plane."""
    if not may_outlive_edge(settings):
        yield trust_keyring, trust_secret
        return
    with (
        closing(SqlLiveCredentials(open_catalog_database(settings))) as live,
        closing(KeyConfirmation(live)) as confirmation,
    ):
        yield confirmation.confirm, confirmation.confirm_secret
