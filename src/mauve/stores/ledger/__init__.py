"""The ledger: exact money, and every version of every subscription.

Money is summed in integers of any size, so nothing is rounded or overflows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ingest_stats import IngestStats
from mauve.stores.log import LogRecord

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


class LedgerWriter(Protocol):
    """Ingest's writer of money.

    - `record` applies all entries in one transaction, durable when it returns. Outcomes are in the order of the
      payments, one list per entry.
    - The first payment with an id is kept permanently. A later one is a duplicate if its digest is equal and its
      claimed time is equal or missing on either side; otherwise it is a conflict, even within one entry. Billers
      report a payment with varying times, so the claimed time of theirs is ignored.
    - A part of a payment is accepted only in the entry in which that payment is accepted; otherwise it is a conflict,
      unless it is already recorded.
    - An accepted payment is added to its day's total (UTC day of `occurred_at`, by currency and `earned`), counts as
      one event of its organization in the billing period of `received_at` if a client sent it, and marks its project
      as seen, in the same transaction.
    - A subscription version is appended. The current row is the version with the highest `at`, then the highest rank,
      then, without ranks, the last recorded. A version with a rank is recorded once: a second one with the same `at`
      and rank is a repeat.
    - The history of MRR is always exact: a version of any date changes it in the same transaction.
    - Deliveries and tallies are recorded as in `ledger.deliveries`, ingest stats as in `ledger.ingest_stats`. A
      delivery with payments in conflict is recorded as a conflict, with the rows that were accepted.
    """

    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]: ...

    def close(self) -> None: ...


class LoadLedger(Protocol):
    """The loader's state, and the events that were sent with payments."""

    def positions(self) -> dict[int, int]: ...

    def intend(self, intent: Intent, turn: Turn | None) -> None:
        """Record the range that is about to be committed to the warehouse, replacing any other.

        Raise `LeaseLostError` and change nothing if another turn has begun. Raise `StepOutdatedError` and change
        nothing unless the positions are those before the range.
        """
        ...

    def intent(self) -> Intent | None:
        """Return the unfinished range, which may be partly or fully stored in the warehouse."""
        ...

    def finish(self, step: LoadStep) -> None:
        """Commit the step in one transaction: advance positions, add counts, keep the earliest first events.

        Clear the intent. Raise `LeaseLostError` and change nothing if another turn has begun. Raise `StepOutdatedError`
        and change nothing unless the positions are still those before the step, so that a step finished twice is
        committed once.
        """
        ...

    def read_events(self, after: int, bytes_max: int) -> list[LogRecord]:
        """Return the event records of mixed batches numbered above `after`, in order."""
        ...

    def last_event_number(self) -> int:
        """Return the number of the last such record, even if it was trimmed."""
        ...

    def trim_events(self, through: int) -> None: ...

    def waiting_bytes(self, after: int) -> int:
        """Return the size of the event records numbered above `after`, up to a maximum number of records."""
        ...

    def usage(self, period: str) -> dict[str, int]:
        """Return the events counted for each organization in a billing period, such as `2026-11`."""
        ...

    def first_seen(self) -> dict[str, int]:
        """Return the projects whose first event is not in the catalog yet, with its time."""
        ...

    def acknowledge_first_seen(self, seen: Mapping[str, int]) -> None:
        """Record that the catalog has these times; only an earlier one is reported again."""
        ...

    def dead_letter_count(self) -> int: ...

    def log_losses(self) -> list[tuple[int, int]]:
        """Return the streams in the dead letters whose files were lost, and when that was detected."""
        ...


class LeaseStore(Protocol):
    """The loader lease: held by one loader at a time, until it expires by the ledger's own clock.

    - Every turn has a higher epoch than all previous ones. `intend` and `finish` refuse any turn but the current one.
    - An expired lease belongs to its holder until another loader acquires it.
    """

    def acquire(self, holder: str, ttl_s: float) -> Turn | None:
        """Begin a turn and return it, or None if another holder has the lease.

        A restarted holder reacquires its own lease immediately.
        """
        ...

    def renew(self, turn: Turn, ttl_s: float) -> bool:
        """Extend the turn by `ttl_s`; return False if it is over."""
        ...

    def release(self, turn: Turn) -> None:
        """End the turn, so that another loader can start immediately; do nothing if another turn has begun."""
        ...


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
