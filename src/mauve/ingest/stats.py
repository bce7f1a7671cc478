"""What became of what was sent, written down every few seconds for the owners of the projects."""

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
    """Note them until cancelled; what is left is noted then."""
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            await note_arrivals(parts)
    finally:
        await note_arrivals(parts)


async def note_arrivals(parts: IngestParts) -> None:
    """Add what was counted since the last time to the ledger. What cannot be written is kept for the next time."""
    counted = parts.counters.take_arrivals()
    if not counted:
        return
    now_ms = parts.clock.now_ms()
    try:
        await parts.ledger.record(Entry(ingest_stats=IngestStats(today_at(now_ms).isoformat(), now_ms, counted)))
    except StoreUnavailableError as error:
        parts.counters.arrivals.update(counted)
        log.warning("arrivals_not_noted", reason=str(error), advice=f"trying again in {_EVERY_S} s")
