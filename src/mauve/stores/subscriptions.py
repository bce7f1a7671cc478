"""The current subscriptions of a project, which MRR is the sum of, for the owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

ID_CHARACTERS_SHOWN: Final = 256
CUSTOMER_SUBSCRIPTIONS_MAX: Final = 500  # found by the customer, the latest ones


@dataclass(frozen=True, slots=True)
class CurrentSubscription:
    key: bytes  # unique: breaks ties in every order
    id: str  # truncated if it is very long
    at: int  # epoch microseconds of the current version
    status: str
    mrr: int
    currency: str
    customer: str | None = None  # as the biller names the person; None: unknown, or erased
    plan: str | None = None

    @property
    def is_counted(self) -> bool:
        """Return whether MRR includes it."""
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class SubscriptionCount:
    status: str
    currency: str
    count: int


class SubscriptionOrder(StrEnum):
    """The orders of the list. Amounts of different currencies are not compared: each currency has its own block."""

    UPDATED = "updated"  # the latest version first
    MRR = "mrr"  # the highest first
    STATUS = "status"  # by name


SubscriptionPosition = tuple[str | int | bytes, ...]
"""The values by which a list is ordered, and the key: pages end at one, and continue after it."""


@dataclass(frozen=True, slots=True)
class SubscriptionQuery:
    """Which subscriptions to list, and how. None: any."""

    order: SubscriptionOrder = SubscriptionOrder.UPDATED
    after: SubscriptionPosition | None = None  # in this order; None: from the first
    status: str | None = None
    named: str | None = None  # exactly the id or the customer


def position_of(each: CurrentSubscription, order: SubscriptionOrder) -> SubscriptionPosition:
    match order:
        case SubscriptionOrder.UPDATED:
            return each.at, each.key
        case SubscriptionOrder.MRR:
            return each.currency, each.mrr, each.key
        case SubscriptionOrder.STATUS:
            return each.status, each.at, each.key


class SubscriptionSummary(NamedTuple):
    """MRR, the counts behind it and a part of the list, all of one moment."""

    mrr: Sequence[tuple[str, int]]  # currency and sum, for each currency with an active subscription
    counts: Sequence[SubscriptionCount]  # most frequent first
    subscriptions: Sequence[CurrentSubscription]
