"""The recorded payments of a project, one by one, for the owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mauve.core.window import Window


@dataclass(frozen=True, slots=True)
class ListedPayment:
    id: str
    occurred_at: int  # epoch ms
    amount: int  # minor units
    currency: str
    earned: bool
    user: str | None
    source: str  # `stores.ledger.CLIENT`, or a biller
    flags: tuple[str, ...] = ()  # what the biller's delivery was warned of; none after an erasure


@dataclass(frozen=True, slots=True)
class PaymentFilter:
    """Which payments to list. None: any."""

    window: Window  # of UTC days of occurrence, as in `revenue` and `volume`
    currency: str | None = None
    source: str | None = None
    user: str | None = None
    id: str | None = None


class PaymentPosition(NamedTuple):
    """A payment's place in the list: pages end at one, and continue after it."""

    occurred_at: int
    id: str


class PaymentReader(Protocol):
    """The list is ordered by time of occurrence, latest first, then by id. Pages contain every payment once."""

    def page(
        self, project: str, chosen: PaymentFilter, after: PaymentPosition | None, limit: int
    ) -> Sequence[ListedPayment]:
        """Return the payments after a position; None starts with the latest."""
        ...

    def with_ids(self, project: str, ids: Sequence[str]) -> Sequence[ListedPayment]:
        """Return those of the payments with these ids that exist, in any order."""
        ...
