"""What Prometheus learns about messages: sent, failed, and waiting."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class AlertMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter("mauve_alerts_sent", "Alerts and digests sent", ["channel"], registry=registry)
        self.failed = Counter("mauve_alerts_failed", "Attempts to send one that failed", ["channel"], registry=registry)
        self.waiting = Gauge("mauve_alerts_waiting", "Alerts and digests that wait to be sent", registry=registry)
        for channel in ("email", "webhook"):  # A counter that appears with its first failure raises no alert.
            self.sent.labels(channel)
            self.failed.labels(channel)
