"""The ledger: exact money, and every version of every subscription.

Money is summed as whole numbers of any size; nothing passes through floats or overflows.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from mauve.core.subscriptions import MrrChange
from mauve.core.window import Window
from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ingest_stats import IngestStats
from mauve.stores.log import LogRecord

CLIENT: Final = "api"
"""The source of payments that clients send themselves."""


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
    payload: bytes  # the item as it came, for audit
    source: str = CLIENT
    part_of: str | None = None  # the id of a payment before it in the same entry: recorded with that one or not at all


class SubscriptionVersion(msgspec.Struct, frozen=True, gc=False):
    project: str
    id: str
    at: int  # epoch microseconds; the later one wins
    received_at: int  # epoch ms
    status: str
    mrr: int
    currency: str
    payload: bytes
    rank: bytes = b""  # of two with equal `at` the higher one wins; without ranks, the later recorded


class Outcome(StrEnum):
    """What became of a payment."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # same id, same payload: nothing moves
    CONFLICT = "conflict"  # same id, another payload: the first one stands


@dataclass(frozen=True, slots=True)
class Entry:
    """What one request wants to be recorded: all of it or nothing."""

    payments: Sequence[Payment] = ()
    subscriptions: Sequence[SubscriptionVersion] = ()
    events: bytes | None = None  # a record for the loader: the events that came in the same batch as payments
    delivery: Delivery | None = None  # the biller's delivery that all this came in
    tallies: Sequence[Tally] = ()  # to be added to what was counted of deliveries
    ingest_stats: IngestStats | None = None  # to be added to what was counted of its day


def noted_delivery(entry: Entry, outcomes: Sequence[Outcome]) -> Delivery | None:
    """Return the note of an entry's delivery: rows that are in conflict were not made."""
    conflicts = outcomes.count(Outcome.CONFLICT)
    if entry.delivery is None or not conflicts:
        return entry.delivery
    return replace(entry.delivery, result=DeliveryResult.CONFLICT, rows=entry.delivery.rows - conflicts)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be loaded, kept with the reason."""

    stream: int
    number: int
    reason: str
    payload: bytes
    at: int


class StepOutdatedError(StoreUnavailableError):
    """The positions are not those that the step began with: it was finished before, or another loader is at work."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What a load has done, to be remembered at once or not at all."""

    positions: Mapping[int, int]  # stream → number of the last record that was loaded
    events_by_org_and_period: Mapping[tuple[str, str], int] = field(default_factory=dict)
    first_seen_by_project: Mapping[str, int] = field(default_factory=dict)  # project → received_at
    dead_letters: Sequence[DeadLetter] = ()
    ingest_stats: IngestStats | None = None
    positions_before: Mapping[int, int] = field(default_factory=dict)  # of the same streams; left out: none so far


class LedgerWriter(Protocol):
    """Where ingest records money.

    - `record` applies all entries in one transaction, durable when it returns; outcomes come in the order of
      the payments, one list for each entry.
    - The first payment with an id stands for good. A later one is a duplicate if its digest is equal and its
      claimed time is equal or missing on either side; otherwise it is a conflict. That holds within one entry, too.
      Billers tell of one payment at several moments, so for theirs the claimed time decides nothing.
    - A part of a payment is accepted only in the entry that its payment is accepted in; otherwise it is a conflict,
      unless it stands already.
    - An accepted payment moves its day's total (UTC day of `occurred_at`, by currency and `earned`), counts as
      one event of its organization in the billing period of `received_at` if a client sent it, and marks its project as
      seen: all in the same transaction.
    - A subscription version is appended; the current row is the version with the highest `at`, of equal ones the
      one with the highest rank, and where there are no ranks the last recorded. A version with a rank is recorded
      once: another one with the same `at` and rank is the same one, come again.
    - The history of MRR is exact at all times: a version, whenever it is dated, changes it in the same transaction.
    - A delivery and tallies are noted as `stores.deliveries` says, arrivals as `stores.arrivals` does. A delivery whose
      payments are in conflict is noted as such, with the rows that stand.
    """

    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]: ...

    def close(self) -> None: ...


class LoadLedger(Protocol):
    """What the loader remembers, and the events that came with payments."""

    def positions(self) -> dict[int, int]: ...

    def finish(self, step: LoadStep) -> None:
        """Remember the step in one transaction: positions move on, counts are added, earliest sightings kept.

        Only if the positions are still those before the step; otherwise `StepOutdatedError`, and nothing changes. So a
        step that is finished twice is remembered once.
        """
        ...

    def read_events(self, after: int, bytes_max: int) -> list[LogRecord]:
        """Return the event records of mixed batches with a number above `after`, in order."""
        ...

    def trim_events(self, through: int) -> None: ...

    def usage(self, period: str) -> dict[str, int]:
        """Return the events counted for each organization in a billing period, such as `2026-11`."""
        ...

    def first_seen(self) -> dict[str, int]:
        """Return the projects whose first sighting was not yet taken over by the catalog, with its moment."""
        ...

    def acknowledge_first_seen(self, seen: Mapping[str, int]) -> None:
        """Note that the catalog knows these moments; they are kept, and only an earlier one counts as new again."""
        ...

    def dead_letter_count(self) -> int: ...


class LedgerReader(Protocol):
    """What the query plane reads. Amounts are exact.

    What is yielded is read while it is taken, in one transaction: who stops in the middle closes it.
    """

    def ping(self) -> None:
        """Return if the ledger can be read."""
        ...

    def day_totals(
        self,
        projects: Collection[str],
        window: Window,
        earned: bool,  # noqa: FBT001 - a stored fact, not a switch
    ) -> Generator[tuple[str, str, str, int], None, None]:
        """Yield (project, day, currency, total) where there was a payment, in this order and never all in memory."""
        ...

    def current_mrr(self, projects: Collection[str]) -> list[tuple[str, str, int]]:
        """Return (project, currency, sum of mrr) over current rows with status `active`, in this order."""
        ...

    def mrr_changes(self, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
        """Yield how MRR changed, by project, then day: as many as there are, one by one and never all in memory.

        What happened before the window is on its first day, beside what happened on that day itself; versions that are
        dated behind the window are left out.
        """
        ...

    def mrr_changes_until_now(self, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
        """Yield the same, with the versions that are dated behind the window on its last day."""
        ...
