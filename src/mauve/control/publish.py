"""Publish the catalog to the edge: right after each change, and in a periodic sweep for what that missed.

Every machine sweeps, so a change is published even if the machine that made it dies.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

import structlog

from mauve.core.clock import Clock
from mauve.core.problems import Code, Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import Catalog
from mauve.stores.edge import EdgePublisher

SWEEP_EVERY_S: Final = 1.0
REFILL_EVERY_S: Final = 10.0  # An edge that is lost while processes run is filled again.
_RECORDS_PER_ROUND: Final = 1_000
_PATIENCE_S: Final = 0.5
_CHANGE_PATIENCE_S: Final = 5.0  # A disk that others keep busy takes seconds to sync.
_REVOCATION_PATIENCE_S: Final = 10.5  # NATS takes 8 s to replace a server that was lost, and its leader must be known.
_PATIENT_MAX: Final = 4  # callers that wait so long at once: half of the threads of a plane
_RETRY_S: Final = 0.2
_RETRY_AFTER_S: Final = 2
_ADVICE: Final = "retried every second"

log = structlog.get_logger()


class UnpublishedRevocation(Problem):
    """A revocation is stored and will be published, but some machines may still accept what was revoked."""

    def __init__(self) -> None:
        super().__init__(
            Code.UPSTREAM_UNAVAILABLE,
            "the change is stored, but some machines may not know it yet and still accept what it ends: it reaches "
            "them by itself as soon as the servers answer, and a retry is safe",
            retry_after_s=_RETRY_AFTER_S,
        )


def log_delay(reason: str) -> None:
    log.warning("publication_delayed", reason=reason, advice=_ADVICE)


class Publisher:
    """Publishes in its own thread, so that an edge that hangs delays no request for long."""

    def __init__(
        self, catalog: Catalog, edge: EdgePublisher, clock: Clock, report_delay: Callable[[str], None] = log_delay
    ) -> None:
        self._publications = catalog.publications
        self._edge = edge
        self._clock = clock
        self._report_delay = report_delay
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._joining = threading.Lock()
        self._next: Future[None] | None = None
        self._patient = threading.Semaphore(_PATIENT_MAX)

    def publish_now(self) -> None:
        """Publish right after a change. The change stands even if this fails: the sweep retries.

        A new credential works as soon as the caller has it, unless the edge is away: a busy disk is waited for, an
        error is not.
        """
        with self._patience(_CHANGE_PATIENCE_S) as patience_s:
            delay = self._publish_within(max(_PATIENCE_S, patience_s))
        if delay is not None:
            self._report_delay(delay)

    def publish_revocation(self) -> None:
        """Publish right after a change that ends a credential; raise if that takes too long.

        Once this has returned, every machine that is in contact with its servers refuses the credential within a
        second.
        """
        with self._patience(_REVOCATION_PATIENCE_S) as patience_s:
            delay = self._publish_until(time.monotonic() + patience_s)
        if delay is not None:
            self._report_delay(delay)
            raise UnpublishedRevocation

    @contextmanager
    def _patience(self, longest_s: float) -> Iterator[float]:
        """Yield how long to wait: only some callers wait long, so that others find a thread while the edge is away."""
        is_patient = self._patient.acquire(blocking=False)
        try:
            yield longest_s if is_patient else 0.0
        finally:
            if is_patient:
                self._patient.release()

    def _publish_until(self, gives_up_at: float) -> str | None:
        """Publish what is pending, and try again until it is too late; return why it is not published."""
        while (delay := self._publish_within(max(_PATIENCE_S, gives_up_at - time.monotonic()))) is not None:
            if time.monotonic() + _RETRY_S > gives_up_at:
                return delay
            time.sleep(_RETRY_S)
        return None

    def _publish_within(self, patience_s: float) -> str | None:
        """Wait for a publication that begins after this call; return why what is pending is not published."""
        try:
            publishing = self._join_next()
        except RuntimeError:
            return "this process is ending"
        if not wait({publishing}, patience_s).done:
            return "the edge did not answer in time"
        error = publishing.exception()
        return None if error is None else str(error)

    def _join_next(self) -> Future[None]:
        """Return the next publication, which all share who ask before it begins: one at most waits for another."""
        with self._joining:
            if self._next is None:
                self._next = self._thread.submit(self._begin_next)
            return self._next

    def _begin_next(self) -> None:
        with self._joining:
            self._next = None
        try:
            self.publish_pending()
        except StoreUnavailableError:
            raise
        except Exception:
            log.exception("publication_failed", advice=_ADVICE)
            raise

    def publish_pending(self) -> int:
        """Publish all pending records and return their number. Set `mirrored_at` only after that."""
        published = 0
        while records := self._publications.pending(_RECORDS_PER_ROUND):
            edge_id = self._edge.publish(records)
            if self._publications.mark_published(records, self._clock.now_ms(), edge_id):
                published += len(records)
            else:
                self._publications.use_edge(edge_id)
        return published

    def refill_if_lost(self) -> None:
        """Publish the whole catalog to an edge that it has not filled before, because it is new or was lost."""
        edge_id = self._edge.edge_id()
        if self._publications.edge_id() != edge_id:
            self._publications.use_edge(edge_id)
        self.publish_pending()

    def unpublished(self) -> int | None:
        """Count the pending records, up to a bound; None if the edge is not the one that was filled."""
        if self._publications.edge_id() != self._edge.edge_id():
            return None
        return len(self._publications.pending(_RECORDS_PER_ROUND))

    def close(self) -> None:
        self._thread.shutdown()
