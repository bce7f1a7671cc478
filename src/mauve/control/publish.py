"""Catalog → edge. Every change is published by whoever made it; what that misses is swept up later."""

from typing import Final

import structlog

from mauve.control.parts import ControlParts
from mauve.stores.unavailable import StoreUnavailableError

SWEEP_EVERY_S: Final = 1.0
_RECORDS_PER_ROUND: Final = 1_000

log = structlog.get_logger()


def publish_pending(parts: ControlParts) -> int:
    """Publish what is pending; return how many records that was. `mirrored_at` is set only after it is true."""
    published = 0
    while records := parts.catalog.publications.pending(_RECORDS_PER_ROUND):
        parts.edge.publish(records)
        parts.catalog.publications.mark_published(records, parts.clock.now_ms())
        published += len(records)
    return published


def publish_now(parts: ControlParts) -> None:
    """Publish right after a change. The change stands even if this fails: the sweep publishes it later."""
    try:
        publish_pending(parts)
    except StoreUnavailableError as error:
        log.warning("publication_delayed", reason=str(error), advice="it is tried again every second")


def refill_if_lost(parts: ControlParts) -> None:
    """Publish the whole catalog to an edge that holds nothing: a new one, or one that was lost."""
    if parts.edge.is_empty():
        parts.catalog.publications.mark_all_pending()
    publish_pending(parts)
