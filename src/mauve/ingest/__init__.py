"""The ingest plane: authenticate, validate and store events, objects and webhooks."""

from collections.abc import Callable
from dataclasses import dataclass

from mauve.access.event_caps import EventCaps
from mauve.access.keyring import Keyring
from mauve.access.vault import Vault
from mauve.core.clock import Clock
from mauve.ingest.publishable import PublishableLimits
from mauve.ingest.stats import IngestCounters
from mauve.overload.admission import Admission, ByteBudget, LoopFairness
from mauve.stores.ledger.group_commit import GroupedLedger
from mauve.stores.log import LogWriter


@dataclass(frozen=True, slots=True)
class IngestParts:
    keyring: Keyring
    caps: EventCaps
    log: LogWriter
    ledger: GroupedLedger
    has_room: Callable[[], bool]  # for the ledger, if it is a file
    publishable_limits: PublishableLimits
    vault: Vault
    clock: Clock
    admission: Admission
    fairness: LoopFairness
    budget: ByteBudget
    counters: IngestCounters
