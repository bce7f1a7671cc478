"""Export engine availability to Prometheus."""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

CHECK_EVERY_S: Final = 5.0


class EngineGauges:
    def __init__(self, registry: CollectorRegistry, engines: Callable[[], Mapping[str, bool]]) -> None:
        self._engines = engines
        self._up = Gauge("mauve_engine_up", "Whether an engine answers: 1 or 0", ["engine"], registry=registry)

    def refresh(self) -> None:
        """Ping every engine. Blocks while one does not answer."""
        for name, is_up in self._engines().items():
            self._up.labels(name).set(is_up)
