"""Events that were accepted and may not be counted yet."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

LINES_MAX: Final = 32
"""For each organization and billing period. With more the lines are joined in pairs: they stay few through an
outage, and what they say of a stream that is loaded in part is up to one line too high."""


class Account(NamedTuple):
    """What a cap holds for."""

    org_id: str
    period: str


Line = tuple[int, int]  # the number of a record, and the events up to it since the line before


class AcceptedCounts:
    """Those of one stream, by the numbers of their records: what is loaded can be told from the rest."""

    def __init__(self, lines_by_account: dict[Account, list[Line]] | None = None) -> None:
        self._lines: dict[Account, list[Line]] = lines_by_account or {}

    def add(self, account: Account, number: int, events: int) -> None:
        """Add a record behind those that are there."""
        lines = self._lines.setdefault(account, [])
        lines.append((number, events))
        if len(lines) > LINES_MAX:
            self._lines[account] = _joined_in_pairs(lines)

    def sums(self, position: int) -> dict[Account, int]:
        """Return how many events stand behind a position."""
        return {
            account: sum(events for number, events in lines if number > position)
            for account, lines in self._lines.items()
        }

    def forget_loaded(self, position: int) -> None:
        """Drop what stands before a position, or on it."""
        kept = ((account, [line for line in lines if line[0] > position]) for account, lines in self._lines.items())
        self._lines = {account: lines for account, lines in kept if lines}

    def forget_all_but(self, org_ids: Collection[str]) -> None:
        self._lines = {account: lines for account, lines in self._lines.items() if account.org_id in org_ids}

    def correct(self, org_ids: Collection[str], through: int, found: "AcceptedCounts") -> None:
        """Take over what was found of some organizations up to a number; what is behind it stays."""
        behind = {
            account: [line for line in lines if account.org_id not in org_ids or line[0] > through]
            for account, lines in self._lines.items()
        }
        for account, lines in found:
            behind[account] = lines + behind.get(account, [])
        self._lines = {account: lines for account, lines in behind.items() if lines}

    def copy(self) -> "AcceptedCounts":
        return AcceptedCounts({account: list(lines) for account, lines in self._lines.items()})

    def __iter__(self) -> Iterator[tuple[Account, list[Line]]]:
        return iter(self._lines.items())

    def __bool__(self) -> bool:
        return bool(self._lines)


def _joined_in_pairs(lines: list[Line]) -> list[Line]:
    """Join each line with the next. The later number stands for both: none is taken for loaded too soon."""
    pairs = zip(lines[0::2], lines[1::2], strict=False)
    joined = [(later[0], earlier[1] + later[1]) for earlier, later in pairs]
    return joined + lines[2 * len(joined) :]
