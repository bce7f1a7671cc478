"""The parts of the ingest plane."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from mauve.access.event_caps import EventCaps
from mauve.access.keyring import Keyring
from mauve.access.vault import Vault
from mauve.core.clock import Clock
from mauve.ingest.counters import IngestCounters
from mauve.ingest.publishable import PublishableLimits
from mauve.overload.admission import Admission
from mauve.overload.byte_budget import ByteBudget
from mauve.overload.loop_fairness import LoopFairness
from mauve.stores.ledger import Entry, Outcome
from mauve.stores.log import LogWriter


class MoneyRecorder(Protocol):
    """Records payments and subscriptions; they are durable when it returns."""

    def record(self, entry: Entry, org_id: str = "") -> Awaitable[list[Outcome]]:
        """Record an entry. Organizations take turns; entries without one share a queue."""
        ...

    @property
    def entry_s(self) -> float:
        """Return how long recording one entry took recently."""
        ...


@dataclass(frozen=True, slots=True)
class IngestParts:
    keyring: Keyring
    caps: EventCaps
    log: LogWriter
    ledger: MoneyRecorder
    has_room: Callable[[], bool]  # for the ledger, if it is a file
    publishable_limits: PublishableLimits
    vault: Vault
    clock: Clock
    admission: Admission
    fairness: LoopFairness
    budget: ByteBudget
    counters: IngestCounters
