"""The current subscriptions of a project, which MRR is the sum of, for the owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ID_CHARACTERS_SHOWN: Final = 256


@dataclass(frozen=True, slots=True)
class CurrentSubscription:
    key: bytes  # unique, and the position at which a page ends
    id: str  # truncated if it is very long
    at: int  # epoch microseconds of the current version
    status: str
    mrr: int
    currency: str

    @property
    def is_counted(self) -> bool:
        """Return whether MRR includes it."""
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class SubscriptionCount:
    status: str
    currency: str
    count: int


class SubscriptionReader(Protocol):
    """Pages have a stable order; a subscription recorded meanwhile appears on one of them, once."""

    def page(self, project: str, after: bytes, limit: int) -> Sequence[CurrentSubscription]:
        """Return the subscriptions with a key above `after`; empty bytes start at the first."""
        ...

    def counts(self, project: str, limit: int) -> Sequence[SubscriptionCount]:
        """Return the number of subscriptions by status and currency, most frequent first."""
        ...
