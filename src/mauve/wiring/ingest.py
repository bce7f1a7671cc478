"""Wires the ingest plane of one process: keyring, log, ledger, limits. Imports nothing that only the core needs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Final

from prometheus_client import CollectorRegistry

from mauve.access.event_caps import EventCaps
from mauve.access.keyring import Keyring
from mauve.config import Settings
from mauve.core.clock import Clock, SystemClock
from mauve.ingest.counters import IngestCounters
from mauve.ingest.parts import IngestParts
from mauve.overload.admission import Admission
from mauve.overload.byte_budget import ByteBudget
from mauve.overload.loop_fairness import LoopFairness
from mauve.overload.token_bucket import TokenBuckets
from mauve.stores.sql.ledger.group_commit import GroupedLedger
from mauve.stores.sql.ledger.usage import SqlUsageReader
from mauve.stores.sql.ledger.writer import SqlLedgerWriter
from mauve.wiring.bootstrap import open_vault
from mauve.wiring.databases import open_ledger_database
from mauve.wiring.edge import open_accepted_exchange, open_edge_reader
from mauve.wiring.log import open_log_writer

_BODIES_BYTES_MAX: Final = 12 * 1024 * 1024


@asynccontextmanager
async def ingest_parts(
    settings: Settings, stream: int, registry: CollectorRegistry, clock: Clock | None = None
) -> AsyncIterator[IngestParts]:
    """Open the parts of one process's ingest plane, on a prepared data directory."""
    vault = open_vault(settings)
    with (
        closing(open_keyring(settings)) as keyring,
        closing(open_ledger_database(settings)) as database,
        open_accepted_exchange(settings, stream) as exchange,
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
                rate=TokenBuckets(settings.publishable_requests_per_s),
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


def open_keyring(settings: Settings) -> Keyring:
    """Open the keyring on the edge, on a prepared data directory."""
    return Keyring(open_edge_reader(settings))
