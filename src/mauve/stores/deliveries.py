"""What the billers have delivered, kept for the owner: the last deliveries of each project, and counts of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

DELIVERIES_KEPT: Final = 200  # for each project


class DeliveryResult(StrEnum):
    """What became of a delivery."""

    STORED = "stored"
    IGNORED = "ignored"  # nothing in it for us: another type, or no money moved
    CONFLICT = "conflict"  # a payment whose id is taken by another payment: the first one stands
    UNUSABLE = "unusable"  # of a type that we book, with content that cannot be booked
    SUSPENDED = "suspended"  # acknowledged and not stored, as the organization's standing demands
    REFUSED = "refused"  # not signed with the project's secret: counted, not kept


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that was signed as it should be."""

    project: str  # public id
    provider: str
    at: int  # epoch ms
    type: str  # as the biller names it
    result: DeliveryResult
    rows: int
    warnings: tuple[str, ...] = ()  # words of a closed set

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words under which the delivery is counted."""
        return (self.result, *self.warnings)


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a word was said of a project's deliveries, and when for the last time."""

    project: str
    provider: str
    word: str
    count: int
    last_at: int  # epoch ms


class DeliveryReader(Protocol):
    """What the owner is shown.

    - A delivery that was recorded is counted for good, and kept until `DELIVERIES_KEPT` later ones of its project.
    """

    def recent(self, project: str) -> Sequence[Delivery]:
        """Return the deliveries that are kept, the latest first."""
        ...

    def tallies(self, project: str) -> Sequence[Tally]:
        """Return the counts, by provider, then word."""
        ...
