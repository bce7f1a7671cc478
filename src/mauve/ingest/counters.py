"""Counters of the ingest plane: for Prometheus, and for the owners of projects."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mauve.stores.ingest_stats import ProjectAndWord


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
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
