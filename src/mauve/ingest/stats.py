"""Write ingest statistics for the owners of projects every few seconds."""

import asyncio
from typing import Final

import structlog

from mauve.core.window import today_at
from mauve.ingest.parts import IngestParts
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import IngestStats
from mauve.stores.ledger import Entry

_EVERY_S: Final = 2.0

log = structlog.get_logger()


async def write_stats_forever(parts: IngestParts) -> None:
    """Write the counts until cancelled, and once more at the end."""
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            await write_stats(parts)
    finally:
        await write_stats(parts)


async def write_stats(parts: IngestParts) -> None:
    """Add the counts since the last call to the ledger; if that fails, keep them for the next call."""
    counted = parts.counters.take_project_stats()
    if not counted:
        return
    now_ms = parts.clock.now_ms()
    try:
        await parts.ledger.record(Entry(ingest_stats=IngestStats(today_at(now_ms).isoformat(), now_ms, counted)))
    except StoreUnavailableError as error:
        parts.counters.project_stats.update(counted)
        log.warning("arrivals_not_noted", reason=str(error), advice=f"trying again in {_EVERY_S} s")
