"""Statistics of the ingest plane: for Prometheus, and in the ledger for the owners of projects."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import count
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mauve.core.window import month_start_at, today_at
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import KEY_USED, IngestStats, ProjectAndWord
from mauve.stores.ledger import Entry

if TYPE_CHECKING:
    from mauve.ingest import IngestParts

_EVERY_S: Final = 2.0
_ROUNDS_PER_KEY_USES: Final = 10

log = structlog.get_logger()


class IngestCounters(Collector):
    """The counters of one process. Plain numbers: written on every request and read rarely."""

    def __init__(self, registry: CollectorRegistry, flush_s: Callable[[], float]) -> None:
        self._flush_s = flush_s
        self.accepted = 0
        self.duplicates = 0
        self.conflicts = 0
        self.failed = 0
        self.rejected: Counter[str] = Counter()  # items, by rejection code
        self.refused: Counter[str] = Counter()  # whole requests, by problem code
        self.project_stats: Counter[ProjectAndWord] = Counter()  # not yet written to the ledger
        self.used_keys: dict[str, str] = {}  # key ids, each with its project; not yet written to the ledger
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("mauve_items_accepted", "Items acknowledged", self.accepted)
        yield CounterMetricFamily("mauve_payments_duplicate", "Payments sent again", self.duplicates)
        yield CounterMetricFamily("mauve_payments_conflicting", "Payments refused: id already used", self.conflicts)
        yield CounterMetricFamily("mauve_requests_failed", "Requests answered with a 5xx", self.failed)
        yield GaugeMetricFamily("mauve_log_flush_seconds", "Recent time to make a group durable", self._flush_s())
        yield _by_label("mauve_items_rejected", "Items refused", "reason", self.rejected)
        yield _by_label("mauve_requests_refused", "Requests refused whole", "code", self.refused)


def _by_label(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, number in sorted(counts.items()):
        family.add_metric([value], number)
    return family


async def write_stats_forever(parts: "IngestParts") -> None:
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


async def write_stats(parts: "IngestParts") -> None:
    """Add the counts since the last call to the ledger; if that fails, keep them for the next call."""
    counted, parts.counters.project_stats = parts.counters.project_stats, Counter()
    if not await _record(parts, today_at, counted):
        parts.counters.project_stats.update(counted)


async def write_key_uses(parts: "IngestParts") -> None:
    """Write which keys were used since the last call; if that fails, keep them for the next call."""
    used, parts.counters.used_keys = parts.counters.used_keys, {}
    words = {(public_id, f"{KEY_USED}:{key_id}"): 1 for key_id, public_id in used.items()}
    if not await _record(parts, month_start_at, words):
        parts.counters.used_keys = used | parts.counters.used_keys


async def _record(parts: "IngestParts", day_at: Callable[[int], date], words: Mapping[ProjectAndWord, int]) -> bool:
    """Record the words under a day; return whether that succeeded."""
    now_ms = parts.clock.now_ms()
    try:
        if words:
            await parts.ledger.record(Entry(ingest_stats=IngestStats(day_at(now_ms).isoformat(), now_ms, words)))
    except StoreUnavailableError as error:
        log.warning("ingest_stats_not_written", reason=str(error), advice="retrying with the next ones")
        return False
    return True
