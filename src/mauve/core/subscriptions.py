"""Subscriptions, and MRR by day: what a version changes, and on which days.

A version counts from its time until the time of the next one. Recording it therefore changes at most two days: its
own, and that of the version after it, however far apart they are.
"""

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final, NamedTuple

from mauve.core.times import DAY_MS

STATUS_CHARACTERS_MAX: Final = 200
# What the billers and the contract call the states of a subscription.
_KNOWN_STATUSES: Final = frozenset(
    {"active", "trialing", "past_due", "canceled", "unpaid", "paused", "incomplete", "incomplete_expired"}
)
_BY_LETTERS: Final = {status.replace("_", ""): status for status in _KNOWN_STATUSES} | {
    "cancelled": "canceled",
    "trialling": "trialing",
}
_LIKELY_CHARACTERS_MAX: Final = 64
_DAY_US: Final = DAY_MS * 1000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


class MrrContribution(NamedTuple):
    currency: str
    mrr: int | None  # None unless it is active


def stored_status(status: str) -> str:
    """Return the status as stored in rows and indexes: a long one is truncated and given a fingerprint.

    The payload keeps the full text.
    """
    if len(status) <= STATUS_CHARACTERS_MAX:
        return status
    fingerprint = hashlib.sha256(status.encode()).hexdigest()[:16]
    return f"{status[:STATUS_CHARACTERS_MAX]}#truncated#{fingerprint}"


def likely_status(status: str) -> str | None:
    """Return the known status that this one differs from only in case, spaces, punctuation or spelling, or None."""
    if status in _KNOWN_STATUSES or len(status) > _LIKELY_CHARACTERS_MAX:
        return None
    letters = "".join(filter(str.isalpha, unicodedata.normalize("NFKC", status).casefold()))
    return _BY_LETTERS.get(letters)


class MrrChange(NamedTuple):
    """The difference between the end of a day and the end of the previous day, in one currency."""

    project: str
    day: int  # since 1970-01-01, UTC
    currency: str
    active: int  # subscriptions: a sum of zero differs from no subscriptions
    mrr: int


class InsertedVersion(NamedTuple):
    """A version just recorded between its neighbors in the history of its subscription."""

    project: str
    sequence: int
    day: int
    contribution: MrrContribution
    before_sequence: int | None  # of the version before it; None: it is the first
    before: MrrContribution | None
    after_day: int | None  # of the next version, dated later or ranked higher; None: it is the last


def day_of(at_us: int) -> int:
    """Return the day of a time in epoch microseconds, as days since 1970-01-01."""
    return at_us // _DAY_US


def day_number_of(day: date) -> int:
    return day.toordinal() - _EPOCH_ORDINAL


class MrrSums:
    def __init__(self) -> None:
        self._sums: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0])

    def replace(
        self, project: str, day: int, before: MrrContribution | None, contribution: MrrContribution | None
    ) -> None:
        """Count one contribution instead of another from this day on; None counts nothing."""
        for each, sign in ((before, -1), (contribution, 1)):
            if each is not None and each.mrr is not None:
                total = self._sums[project, day, each.currency]
                total[0] += sign
                total[1] += sign * each.mrr

    def insert(self, inserted: Iterable[InsertedVersion]) -> None:
        """Add versions that were recorded together between existing ones."""
        new = {each.sequence: each for each in inserted}
        followed = {each.before_sequence for each in new.values()}
        for each in new.values():
            self.replace(each.project, each.day, each.before, each.contribution)
            if each.after_day is not None and each.sequence not in followed:
                # The next version now follows this one, no longer the one that preceded all the new ones.
                self.replace(each.project, each.after_day, each.contribution, _first_of_run(each, new).before)

    @property
    def changes(self) -> list[MrrChange]:
        return [MrrChange(*key, *total) for key, total in self._sums.items() if any(total)]


def _first_of_run(last: InsertedVersion, new: Mapping[int, InsertedVersion]) -> InsertedVersion:
    """Return the first of a run of new versions that ends with this one."""
    first = last
    while first.before_sequence is not None and first.before_sequence in new:
        first = new[first.before_sequence]
    return first
