"""The subscriptions of a project as they stand now: what MRR is the sum of, for the owner to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ID_CHARACTERS_SHOWN: Final = 256


@dataclass(frozen=True, slots=True)
class CurrentSubscription:
    key: bytes  # tells one from another, and where a page of them ends
    id: str  # its beginning, if it is longer than anybody can read
    at: int  # epoch microseconds of the version that stands
    status: str
    mrr: int
    currency: str

    @property
    def is_counted(self) -> bool:
        """Tell whether MRR counts it."""
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class SubscriptionCount:
    status: str
    currency: str
    count: int


class SubscriptionReader(Protocol):
    """Pages come in an order that does not change; what is recorded meanwhile is on one of them, once."""

    def page(self, project: str, after: bytes, limit: int) -> Sequence[CurrentSubscription]:
        """Return the subscriptions with a key above `after`; empty bytes: from the first on."""
        ...

    def counts(self, project: str, limit: int) -> Sequence[SubscriptionCount]:
        """Return how many there are of each status and currency, the most frequent first."""
        ...
