"""What happened at the ingest plane, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_FLUSH_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


class IngestCounters:
    """The counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.accepted = Counter("mauve_items_accepted", "Items acknowledged", registry=registry)
        self.rejected = Counter("mauve_items_rejected", "Items refused", ["reason"], registry=registry)
        self.duplicates = Counter("mauve_payments_duplicate", "Payments sent again", registry=registry)
        self.conflicts = Counter("mauve_payments_conflicting", "Payments refused: id taken", registry=registry)
        self.refused = Counter("mauve_requests_refused", "Requests refused whole", ["code"], registry=registry)
        self.failed = Counter("mauve_requests_failed", "Requests answered with a 5xx", registry=registry)
        self.durable_seconds = Histogram(
            "mauve_durable_seconds",
            "From a judged batch to a durable one",
            registry=registry,
            buckets=_FLUSH_SECONDS,
        )
