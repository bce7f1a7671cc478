"""Events that were accepted and may not be counted yet."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

LINES_MAX: Final = 64
"""For each organization and billing period. With more, neighbours are joined: they stay few through an outage."""
JOINED_SHARE: Final = 16
"""A joined line holds no more than one part in so many of what all lines held when it was joined. A stream that is
loaded in part is counted too high by less than that, and never too low: only one line can be loaded in part."""


class OrgPeriod(NamedTuple):
    """What a cap holds for."""

    org_id: str
    period: str


Line = tuple[int, int]  # the number of a record, and the events up to it since the line before


class AcceptedCounts:
    """Those of one stream, by the numbers of their records: what is loaded can be told from the rest."""

    def __init__(self, lines_by_org_period: dict[OrgPeriod, list[Line]] | None = None) -> None:
        self._lines: dict[OrgPeriod, list[Line]] = lines_by_org_period or {}

    def add(self, org_period: OrgPeriod, number: int, events: int) -> None:
        """Add a record behind those that are there."""
        lines = self._lines.setdefault(org_period, [])
        lines.append((number, events))
        if len(lines) > LINES_MAX:
            self._lines[org_period] = _joined(lines)

    def sums(self, position: int) -> dict[OrgPeriod, int]:
        """Return how many events stand behind a position."""
        return {
            org_period: sum(events for number, events in lines if number > position)
            for org_period, lines in self._lines.items()
        }

    def forget_loaded(self, position: int) -> None:
        """Drop what stands before a position, or on it."""
        kept = (
            (org_period, [line for line in lines if line[0] > position]) for org_period, lines in self._lines.items()
        )
        self._lines = {org_period: lines for org_period, lines in kept if lines}

    def forget_all_but(self, org_ids: Collection[str]) -> None:
        self._lines = {org_period: lines for org_period, lines in self._lines.items() if org_period.org_id in org_ids}

    def correct(self, org_ids: Collection[str], through: int, found: "AcceptedCounts") -> None:
        """Take over what was found of some organizations up to a number; what is behind it stays."""
        behind = {
            org_period: [line for line in lines if org_period.org_id not in org_ids or line[0] > through]
            for org_period, lines in self._lines.items()
        }
        for org_period, lines in found:
            behind[org_period] = lines + behind.get(org_period, [])
        self._lines = {org_period: lines for org_period, lines in behind.items() if lines}

    def copy(self) -> "AcceptedCounts":
        return AcceptedCounts({org_period: list(lines) for org_period, lines in self._lines.items()})

    def __iter__(self) -> Iterator[tuple[OrgPeriod, list[Line]]]:
        return iter(self._lines.items())

    def __bool__(self) -> bool:
        return bool(self._lines)


def _joined(lines: list[Line]) -> list[Line]:
    """Join neighbours while they hold little. The later number stands for both: none is taken for loaded too soon.

    Two neighbours that are left hold more than a share together, so about two lines for each share are left.
    """
    events_max = sum(events for _, events in lines) // JOINED_SHARE
    joined = lines[:1]
    for number, events in lines[1:]:
        together = joined[-1][1] + events
        if together <= events_max:
            joined[-1] = (number, together)
        else:
            joined.append((number, events))
    return joined
