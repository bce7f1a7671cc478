"""Publish the catalog to the edge: right after each change, and in a periodic sweep for what that missed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

import structlog

from mauve.core.clock import Clock
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import Catalog
from mauve.stores.edge import EdgePublisher

SWEEP_EVERY_S: Final = 1.0
REFILL_EVERY_S: Final = 10.0  # An edge that is lost while processes run is filled again.
_RECORDS_PER_ROUND: Final = 1_000
_EDGE_ID: Final = "edge_id"
_PATIENCE_S: Final = 0.5
_ADVICE: Final = "retried every second"

log = structlog.get_logger()


def log_delay(reason: str) -> None:
    log.warning("publication_delayed", reason=reason, advice=_ADVICE)


class Publisher:
    """Publishes in its own thread, so that an edge that hangs delays no request for long."""

    def __init__(
        self, catalog: Catalog, edge: EdgePublisher, clock: Clock, report_delay: Callable[[str], None] = log_delay
    ) -> None:
        self._catalog = catalog
        self._edge = edge
        self._clock = clock
        self._report_delay = report_delay
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publish")

    def publish_now(self) -> None:
        """Publish right after a change. The change stands even if this fails: the sweep retries."""
        try:
            publishing = self._thread.submit(self.publish_pending)
            if not wait({publishing}, _PATIENCE_S).done:
                publishing.cancel()  # An earlier one hangs: do not queue more after it.
                self._report_delay("the edge did not answer in time")
                return
            publishing.result()
        except StoreUnavailableError as error:
            self._report_delay(str(error))
        except Exception:
            log.exception("publication_failed", advice=_ADVICE)

    def publish_pending(self) -> int:
        """Publish all pending records and return their number. Set `mirrored_at` only after that."""
        published = 0
        while records := self._catalog.publications.pending(_RECORDS_PER_ROUND):
            self._edge.publish(records)
            self._catalog.publications.mark_published(records, self._clock.now_ms())
            published += len(records)
        return published

    def refill_if_lost(self) -> None:
        """Publish the whole catalog to an edge that it has not filled before, because it is new or was lost."""
        edge_id = self._edge.edge_id()
        if self._catalog.installation.get(_EDGE_ID) != edge_id:
            self._catalog.publications.mark_all_pending()
            self._catalog.installation.put(_EDGE_ID, edge_id)
        self.publish_pending()

    def unpublished(self) -> int | None:
        """Count the pending records, up to a bound; None if the edge is not the one that was filled."""
        if self._catalog.installation.get(_EDGE_ID) != self._edge.edge_id():
            return None
        return len(self._catalog.publications.pending(_RECORDS_PER_ROUND))

    def close(self) -> None:
        self._thread.shutdown()
