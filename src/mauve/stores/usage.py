"""Usage: what the ledger has counted, and what processes have accepted that it has not.

Together they tell how many events an organization has sent in a billing period, also while nobody loads.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from mauve.core.accepted import AcceptedCounts, OrgPeriod


class PendingEvents(NamedTuple):
    """A record of the mixed stream: its events are accepted and not loaded."""

    number: int
    org_period: OrgPeriod
    events: int


class CountedUsage(NamedTuple):
    """What the ledger held at one moment."""

    period: str
    events: dict[str, int]  # by organization, in the period
    positions: dict[int, int]  # stream → number of the last record that these events include
    mixed: Sequence[PendingEvents]
    mixed_through: int  # the last record of the mixed stream


class UsageReader(Protocol):
    """What the ledger has counted.

    - All that `counted` returns is of one moment: an event is in `events`, or behind `positions`, never in both.
    - `mixed` has the records behind the position and above `mixed_after`, of the organizations asked for. Asking again
      from `mixed_through` misses none.
    """

    def events(self, org_period: OrgPeriod) -> int: ...

    def counted(self, period: str, org_ids: Collection[str], mixed_after: int) -> CountedUsage: ...


class AcceptedExchange(Protocol):
    """Where processes tell one another what they have accepted. It needs no process but the one that uses it.

    - What was shared is seen by the others whole, at their next look; it replaces what was shared before.
    - It outlives the process that shared it. A power cut may take it: the log knows the same.
    """

    def share(self, accepted: AcceptedCounts) -> None: ...

    def own(self) -> AcceptedCounts:
        """Return what was shared last for this process's stream, maybe by the one before it."""
        ...

    def others(self) -> dict[int, AcceptedCounts]:
        """Return what was shared last for each other stream."""
        ...
