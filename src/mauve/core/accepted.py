"""Counts of events that are accepted and may not be loaded yet."""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

SUBTOTALS_MAX: Final = 64
"""For each organization and billing period. Beyond it, neighbors are merged, so an outage does not add more."""
MERGED_SHARE: Final = 16
"""A merged subtotal holds at most 1/16 of the events counted when it was merged. Only one subtotal can be partly
loaded, so the sum is never too low, and too high by less than that share."""


class OrgPeriod(NamedTuple):
    org_id: str
    period: str


Subtotal = tuple[
    int, int
]  # a record number, and the events since the previous subtotal up to and including that record


class AcceptedCounts:
    """The counts of one stream by record number, so that loaded events can be told from pending ones."""

    def __init__(self, subtotals_by_org_period: dict[OrgPeriod, list[Subtotal]] | None = None) -> None:
        self._subtotals: dict[OrgPeriod, list[Subtotal]] = subtotals_by_org_period or {}

    def add(self, org_period: OrgPeriod, number: int, events: int) -> None:
        """Add a record. Records of a stream on a server may be confirmed out of order."""
        subtotals = self._subtotals.setdefault(org_period, [])
        insort(subtotals, (number, events))
        if len(subtotals) > SUBTOTALS_MAX:
            self._subtotals[org_period] = _merged(subtotals)

    def sums(self, position: int) -> dict[OrgPeriod, int]:
        return {
            org_period: sum(events for number, events in subtotals if number > position)
            for org_period, subtotals in self._subtotals.items()
        }

    def drop_loaded(self, position: int) -> None:
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
        """Replace the counts of some organizations up to a record number; keep everything after it."""
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


def events_after(
    positions: Mapping[int, int], counts_by_stream: Iterable[tuple[int, AcceptedCounts]]
) -> Counter[OrgPeriod]:
    """Return how many events come after the position of their stream. A stream may be given several times."""
    events: Counter[OrgPeriod] = Counter()
    for stream, accepted in counts_by_stream:
        events.update(accepted.sums(positions.get(stream, 0)))
    return events


def _merged(subtotals: list[Subtotal]) -> list[Subtotal]:
    """Merge small neighbors. The later number stands for both, so nothing counts as loaded too early.

    Any two neighbors left hold more than one share together, so about two subtotals remain for each share.
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
