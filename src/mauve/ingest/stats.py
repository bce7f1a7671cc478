"""Write ingest statistics for the owners of projects every few seconds, and the uses of keys less often."""

import asyncio
from collections import Counter
from itertools import count
from typing import Final

import structlog

from mauve.core.window import month_start_at, today_at
from mauve.ingest.dependencies import IngestParts
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import KEY_USED, IngestStats
from mauve.stores.ledger import Entry

_EVERY_S: Final = 2.0
_ROUNDS_PER_KEY_USES: Final = 10

log = structlog.get_logger()


async def write_stats_forever(parts: IngestParts) -> None:
    """Write the counts until cancelled, and once more at the end."""
    try:
        for number in count(1):
            await asyncio.sleep(_EVERY_S)
            await write_stats(parts)
            if number % _ROUNDS_PER_KEY_USES == 0:
                await write_key_uses(parts)
    finally:
        await write_stats(parts)
        await write_key_uses(parts)


async def write_stats(parts: IngestParts) -> None:
    """Add the counts since the last call to the ledger; if that fails, keep them for the next call."""
    counted, parts.counters.project_stats = parts.counters.project_stats, Counter()
    if not counted:
        return
    now_ms = parts.clock.now_ms()
    try:
        await parts.ledger.record(Entry(ingest_stats=IngestStats(today_at(now_ms).isoformat(), now_ms, counted)))
    except StoreUnavailableError as error:
        parts.counters.project_stats.update(counted)
        log.warning("arrivals_not_noted", reason=str(error), advice=f"trying again in {_EVERY_S} s")


async def write_key_uses(parts: IngestParts) -> None:
    """Write which keys were used since the last call; if that fails, keep them for the next call."""
    used, parts.counters.used_keys = parts.counters.used_keys, {}
    if not used:
        return
    now_ms = parts.clock.now_ms()
    words = {(public_id, f"{KEY_USED}:{key_id}"): 1 for key_id, public_id in used.items()}
    try:
        await parts.ledger.record(Entry(ingest_stats=IngestStats(month_start_at(now_ms).isoformat(), now_ms, words)))
    except StoreUnavailableError as error:
        parts.counters.used_keys = used | parts.counters.used_keys
        log.warning("key_uses_not_noted", reason=str(error), advice="trying again with the next ones")
