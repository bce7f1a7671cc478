"""What the ledger has seen for the first time → the catalog, where it shows."""

from collections.abc import Callable

from mauve.stores.ledger import LoadLedger


def note_first_events(ledger: LoadLedger, note: Callable[[str, int], None]) -> None:
    """Hand each project's first sighting over, and forget it only when that is done."""
    seen = ledger.first_seen()
    for project, at in seen.items():
        note(project, at)
    if seen:
        ledger.forget_first_seen(seen)
