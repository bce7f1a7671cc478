"""The recorded payments of a project, one by one, for the owner."""

from dataclasses import dataclass
from typing import NamedTuple

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
