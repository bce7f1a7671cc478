"""Usage: the events that the ledger has counted, and those accepted by processes but not counted yet.

Together they give the events of an organization in a billing period, even while the loader is down.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from mauve.core.accepted import AcceptedCounts, OrgPeriod


class PendingEvents(NamedTuple):
    """A record of the mixed stream whose events are accepted but not loaded."""

    number: int
    org_period: OrgPeriod
    events: int


class CountedUsage(NamedTuple):
    """The state of the ledger at one point in time."""

    period: str
    events: dict[str, int]  # by organization, in the period
    positions: dict[int, int]  # stream → number of the last record included in these events
    mixed: Sequence[PendingEvents]
    mixed_through: int  # the last record of the mixed stream


class AcceptedExchange(Protocol):
    """Where processes share what they have accepted. It depends on no other process.

    - Others see what was shared completely, at their next read, or on a server soon after; it replaces what was shared
      before.
    - It survives the process that shared it. A power cut may lose it: the log holds the same information.
    - Opening it reads what the predecessor shared. Later, while a server is down, `others` returns what it knows.
    - Counts are kept by the stream of the log that holds the events; processes may share a stream.
    """

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None: ...

    def own(self) -> dict[int, AcceptedCounts]:
        """Return what this process last shared, or its predecessor of the same name."""
        ...

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        """Return each stream of each other process, with what it last shared."""
        ...
