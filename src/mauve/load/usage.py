"""What the ledger has counted → the edge, where the cap is checked, and the catalog, where the first event shows."""

from collections.abc import Callable

from mauve.core.clock import Clock
from mauve.core.period import period_of
from mauve.stores.edge import EdgePublisher, PublishedUsage
from mauve.stores.ledger import LoadLedger


class UsageMirror:
    """Publishes each organization's count whenever it has changed."""

    def __init__(self, ledger: LoadLedger, edge: EdgePublisher, clock: Clock) -> None:
        self._ledger = ledger
        self._edge = edge
        self._clock = clock
        self._published: dict[str, PublishedUsage] = {}

    def publish_changes(self) -> None:
        period = period_of(self._clock.now_ms())
        counts = self._ledger.usage(period)
        usage = {org_id: PublishedUsage(org_id, period, events) for org_id, events in counts.items()}
        changed = [each for org_id, each in usage.items() if self._published.get(org_id) != each]
        if changed:
            self._edge.publish(changed)
            self._published |= usage


def note_first_events(ledger: LoadLedger, note: Callable[[str, int], None]) -> None:
    """Hand each project's first sighting over, and forget it only when that is done."""
    seen = ledger.first_seen()
    for project, at in seen.items():
        note(project, at)
    if seen:
        ledger.forget_first_seen(seen)
