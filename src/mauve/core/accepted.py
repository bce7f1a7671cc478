"""Events that were accepted and may not be counted yet."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

SUBTOTALS_MAX: Final = 64
"""For each organization and billing period. With more, neighbours are joined: they stay few through an outage."""
MERGED_SHARE: Final = 16
"""A joined line holds no more than one part in so many of what all lines held when it was joined. A stream that is
loaded in part is counted too high by less than that, and never too low: only one line can be loaded in part."""


class OrgPeriod(NamedTuple):
    """What a cap holds for."""

    org_id: str
    period: str


Subtotal = tuple[int, int]  # the number of a record, and the events up to it since the line before


class AcceptedCounts:
    """Those of one stream, by the numbers of their records: what is loaded can be told from the rest."""

    def __init__(self, subtotals_by_org_period: dict[OrgPeriod, list[Subtotal]] | None = None) -> None:
        self._subtotals: dict[OrgPeriod, list[Subtotal]] = subtotals_by_org_period or {}

    def add(self, org_period: OrgPeriod, number: int, events: int) -> None:
        """Add a record behind those that are there."""
        subtotals = self._subtotals.setdefault(org_period, [])
        subtotals.append((number, events))
        if len(subtotals) > SUBTOTALS_MAX:
            self._subtotals[org_period] = _merged(subtotals)

    def sums(self, position: int) -> dict[OrgPeriod, int]:
        """Return how many events stand behind a position."""
        return {
            org_period: sum(events for number, events in subtotals if number > position)
            for org_period, subtotals in self._subtotals.items()
        }

    def drop_loaded(self, position: int) -> None:
        """Drop what stands before a position, or on it."""
        kept = (
            (org_period, [subtotal for subtotal in subtotals if subtotal[0] > position])
            for org_period, subtotals in self._subtotals.items()
        )
        self._subtotals = {org_period: subtotals for org_period, subtotals in kept if subtotals}

    def keep_only(self, org_ids: Collection[str]) -> None:
        self._subtotals = {
            org_period: subtotals for org_period, subtotals in self._subtotals.items() if org_period.org_id in org_ids
        }

    def correct(self, org_ids: Collection[str], through: int, found: "AcceptedCounts") -> None:
        """Take over what was found of some organizations up to a number; what is behind it stays."""
        remaining = {
            org_period: [
                subtotal for subtotal in subtotals if org_period.org_id not in org_ids or subtotal[0] > through
            ]
            for org_period, subtotals in self._subtotals.items()
        }
        for org_period, subtotals in found:
            remaining[org_period] = subtotals + remaining.get(org_period, [])
        self._subtotals = {org_period: subtotals for org_period, subtotals in remaining.items() if subtotals}

    def copy(self) -> "AcceptedCounts":
        return AcceptedCounts({org_period: list(subtotals) for org_period, subtotals in self._subtotals.items()})

    def __iter__(self) -> Iterator[tuple[OrgPeriod, list[Subtotal]]]:
        return iter(self._subtotals.items())

    def __bool__(self) -> bool:
        return bool(self._subtotals)


def _merged(subtotals: list[Subtotal]) -> list[Subtotal]:
    """Join neighbours while they hold little. The later number stands for both: none is taken for loaded too soon.

    Two neighbours that are left hold more than a share together, so about two lines for each share are left.
    """
    events_max = sum(events for _, events in subtotals) // MERGED_SHARE
    merged = subtotals[:1]
    for number, events in subtotals[1:]:
        together = merged[-1][1] + events
        if together <= events_max:
            merged[-1] = (number, together)
        else:
            merged.append((number, events))
    return merged
