"""Events that were accepted and may not be counted yet."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

LINES_MAX: Final = 32
"""For each organization and billing period. With more the lines are joined in pairs: they stay few through an
outage, and what they say of a stream that is loaded in part is up to one line too high."""


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
            self._lines[org_period] = _joined_in_pairs(lines)

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


def _joined_in_pairs(lines: list[Line]) -> list[Line]:
    """Join each line with the next. The later number stands for both: none is taken for loaded too soon."""
    pairs = zip(lines[0::2], lines[1::2], strict=False)
    joined = [(later[0], earlier[1] + later[1]) for earlier, later in pairs]
    return joined + lines[2 * len(joined) :]
