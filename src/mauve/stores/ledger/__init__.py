"""The ledger: exact money, and every version of every subscription.

Money is summed in integers of any size, so nothing is rounded or overflows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ingest_stats import IngestStats

CLIENT: Final = "api"
"""The source of payments that clients send themselves."""
LOG_LOST: Final = "the files of this stream end before this loaded record: events waiting after it are lost"
"""The reason in a dead letter that stands for the loss of a stream's files."""


class Payment(msgspec.Struct, frozen=True, gc=False):
    org_id: str
    project: str  # public id
    id: str
    digest: bytes  # of the payload without `at`: equal payloads, equal digests
    claimed_at: int | None  # epoch ms of the raw `at`, unclamped; None if none was sent
    amount: int  # minor units, 0 to 2**53 - 1
    currency: str
    earned: bool
    user: str | None
    occurred_at: int  # epoch ms, clamped
    received_at: int
    payload: bytes  # the item as received, for audit
    source: str = CLIENT
    part_of: str | None = None  # the id of an earlier payment in the same entry: recorded together or not at all


class SubscriptionVersion(msgspec.Struct, frozen=True, gc=False):
    project: str
    id: str
    at: int  # epoch microseconds; the latest wins
    received_at: int  # epoch ms
    status: str
    mrr: int
    currency: str
    payload: bytes
    rank: bytes = b""  # for equal `at` the highest wins; without ranks, the last recorded
    customer: str | None = None  # the biller's name for the person
    plan: str | None = None


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # same id, same payload: nothing changes
    CONFLICT = "conflict"  # same id, different payload: the first one is kept


@dataclass(frozen=True, slots=True)
class Entry:
    """The data of one request, recorded atomically."""

    payments: Sequence[Payment] = ()
    subscriptions: Sequence[SubscriptionVersion] = ()
    events: bytes | None = None  # a record for the loader: the events sent in the same batch as payments
    delivery: Delivery | None = None  # the biller's delivery that this came from
    tallies: Sequence[Tally] = ()  # to add to the counts of deliveries
    ingest_stats: IngestStats | None = None  # to add to the counts of its day


def recorded_delivery(entry: Entry, outcomes: Sequence[Outcome]) -> Delivery | None:
    """Return an entry's delivery as recorded, without the rows in conflict."""
    conflicts = outcomes.count(Outcome.CONFLICT)
    if entry.delivery is None or not conflicts:
        return entry.delivery
    return replace(entry.delivery, result=DeliveryResult.CONFLICT, rows=entry.delivery.rows - conflicts)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be loaded, with the reason."""

    stream: int
    number: int
    reason: str
    payload: bytes
    at: int


class StepOutdatedError(StoreUnavailableError):
    """The positions have changed since the step began: it is already finished, or another loader is running."""


class LeaseLostError(StepOutdatedError):
    """Another loader holds the lease: this one can no longer commit."""


class Turn(NamedTuple):
    """A loader's turn. Compare both fields: a failover that loses the last commits may grant an epoch twice."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A range of the log that a loader is about to commit: records after `before`, through `positions`."""

    before: Mapping[int, int]  # of the same streams
    positions: Mapping[int, int]  # stream → number of the last record

    @property
    def name(self) -> str:
        """Return the range as text, such as `240:128-192,255:3-4`: the same for every loader."""
        return ",".join(f"{stream}:{self.before[stream]}-{last}" for stream, last in sorted(self.positions.items()))

    def without(self, streams: Collection[int]) -> "Intent":
        kept = self.positions.keys() - set(streams)
        return Intent({each: self.before[each] for each in kept}, {each: self.positions[each] for each in kept})


def intent_from(name: str) -> Intent:
    before, positions = {}, {}
    for part in name.split(","):
        stream, _, numbers = part.partition(":")
        first, _, last = numbers.partition("-")
        before[int(stream)], positions[int(stream)] = int(first), int(last)
    return Intent(before, positions)


@dataclass(frozen=True, slots=True)
class LoadStep:
    """The result of a load, committed atomically."""

    positions: Mapping[int, int]  # stream → number of the last record loaded
    events_by_org_and_period: Mapping[tuple[str, str], int] = field(default_factory=dict)
    first_seen_by_project: Mapping[str, int] = field(default_factory=dict)  # project → received_at
    dead_letters: Sequence[DeadLetter] = ()
    ingest_stats: IngestStats | None = None
    positions_before: Mapping[int, int] = field(default_factory=dict)  # of the same streams; missing: none so far
    turn: Turn | None = None  # None: the caller knows that no loader is running


class ReceivedPayment(NamedTuple):
    """A payment in the list of latest arrivals."""

    id: str
    received_at: int  # epoch ms
    occurred_at: int
    user: str | None
    amount: int  # minor units
    currency: str
    earned: bool
    source: str
