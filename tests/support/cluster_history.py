"""What clients of a cluster were told, what it has stored, and the comparison of both.

Every check is a pure function that returns what is wrong. Histories written for that show that each finds its fault.
`cluster_answers` has the checks of what was answered.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from support.cluster_delays import Delays

NO_ANSWER = 0  # instead of a status: it was sent, and may have been carried out
WRITE_KINDS = ("event", "batch", "mixed", "payment", "subscription", "biller_a", "biller_b")


class Outcome(StrEnum):
    """How a write ended after its last try."""

    ACKED = "acked"
    REFUSED = "refused"  # No server has ever read it.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Event:
    id: str
    user: str
    is_dated: bool = False  # whether it claims to have occurred on the day that `dau` is checked for


@dataclass(frozen=True)
class Payment:
    id: str
    amount: int
    currency: str
    is_earned: bool = True


@dataclass(frozen=True)
class Version:
    """One state of a subscription; a higher number is newer."""

    id: str
    number: int
    mrr: int
    currency: str


class Written(NamedTuple):
    """The content of a request."""

    events: tuple[Event, ...] = ()
    payments: tuple[Payment, ...] = ()
    versions: tuple[Version, ...] = ()


@dataclass(frozen=True)
class Write:
    """One request, sent to one node after the other until it was acknowledged or the tries were used up."""

    outcome: Outcome
    kind: str  # one of WRITE_KINDS, or another
    events: tuple[Event, ...] = ()
    payments: tuple[Payment, ...] = ()
    versions: tuple[Version, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a node said to one try; the moments are those of the client."""

    node: str
    kind: str
    status: int
    sent_at: float
    answered_at: float
    has_retry_after: bool = True


@dataclass
class KeyLife:
    """A key, when its revocation was first asked for and when it was answered, and the answers to its uses."""

    revoking_at: float = inf
    revoked_at: float | None = None
    uses: list[Answer] = field(default_factory=list)


@dataclass(frozen=True)
class Trouble:
    """The time from a node's fault until it was seen ready again."""

    node: str
    began_at: float
    ended_at: float
    accepted: tuple[float, float] = (0.0, 0.0)  # from when an event was sent again and again until another node took it
    cut: tuple[float, float] | None = None  # when it certainly could not reach a majority of the NATS servers
    is_clock_moved: bool = False
    is_without_servers: bool = False  # whether it could not reach PostgreSQL


@dataclass(frozen=True)
class Limit:
    """How often all api machines together may do something before they refuse with 429."""

    kind: str
    least: int  # This often, the answer is not 429 …
    most: int  # … and at most this often in any window,
    window_s: float = inf
    memory_s: float = inf  # for which a refusal may look back
    taken: int = 200  # the status of what counts


@dataclass(frozen=True)
class Takeover:
    """The loss of the node that loaded, and what happened to an event that was sent after it."""

    lost_at: float
    accepted_at: float
    taken_at: float  # Another node holds the lease,
    loaded_at: float  # and has put the event into the warehouse.


@dataclass
class History:
    """What the clients of one run have seen."""

    writes: list[Write] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    keys: list[KeyLife] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    limits: tuple[Limit, ...] = ()
    nodes: tuple[str, ...] = ()  # all of them accept events
    apis: tuple[str, ...] = ()  # those that answer reads and show pages
    takeover: Takeover | None = None  # None: the fault did not stop the loader
    delays: Delays = field(default_factory=Delays)

    def ended(self, *outcomes: Outcome) -> Iterator[Write]:
        return (write for write in self.writes if write.outcome in outcomes)


@dataclass(frozen=True)
class Stored:
    """What the engines hold and the API reports for the project of one run."""

    events: Sequence[tuple[str, str, int]]  # id, user, whether it counts
    payments: Sequence[Payment]
    versions: Mapping[str, Version]  # the current one of each subscription
    mau: int
    dau: int  # of the checked day
    revenue: Mapping[str, int]
    volume: Mapping[str, int]
    mrr: Mapping[str, int]


def faults_of_data(history: History, stored: Stored) -> list[str]:
    """Return everything that is wrong with what is stored, as sentences."""
    checks = (_events, _payments, _money, _subscriptions, _users)
    return [fault for check in checks for fault in check(history, stored)]


def _events(history: History, stored: Stored) -> Iterator[str]:
    """Compare ids: acknowledged ones are stored, others only if they may be, and each counts once."""
    acked = {event.id for write in history.ended(Outcome.ACKED) for event in write.events}
    unknown = {event.id for write in history.ended(Outcome.UNKNOWN) for event in write.events}
    counts = Counter[str]()
    for id_, _, counted in stored.events:
        counts[id_] += counted
    yield from _between("event", acked, counts.keys(), acked | unknown)
    yield from (f"event {id_} counts {count} times" for id_, count in counts.items() if count != 1)


def _payments(history: History, stored: Stored) -> Iterator[str]:
    acked = {payment for write in history.ended(Outcome.ACKED) for payment in write.payments}
    unknown = {payment for write in history.ended(Outcome.UNKNOWN) for payment in write.payments}
    yield from _between("payment", acked, set(stored.payments), acked | unknown)
    ids = Counter(payment.id for payment in stored.payments)
    yield from (f"payment {id_} is stored {count} times" for id_, count in ids.items() if count != 1)


def _money(history: History, stored: Stored) -> Iterator[str]:
    """Compare sums: exact by what is stored, and between what was acknowledged and what may have been."""
    for name, reported, is_earned in (("revenue", stored.revenue, True), ("volume", stored.volume, False)):
        exact = _sums(payment for payment in stored.payments if payment.is_earned is is_earned)
        if exact != {currency: amount for currency, amount in reported.items() if amount}:
            yield f"{name} is {dict(reported)}, stored payments add up to {exact}"
        low = _sums(_paid(history.ended(Outcome.ACKED), is_earned))
        high = _sums(_paid(history.ended(Outcome.ACKED, Outcome.UNKNOWN), is_earned))
        for currency, amount in high.items():
            if not low.get(currency, 0) <= reported.get(currency, 0) <= amount:
                yield f"{name} in {currency} is {reported.get(currency, 0)}, not {low.get(currency, 0)} to {amount}"


def _subscriptions(history: History, stored: Stored) -> Iterator[str]:
    """Check that each subscription has its last acknowledged version, or a later one that may have been stored."""
    acked = _versions(history.ended(Outcome.ACKED))
    unknown = _versions(history.ended(Outcome.UNKNOWN))
    for id_ in acked.keys() | unknown.keys() | stored.versions.keys():
        last = max((version.number for version in acked[id_]), default=0)
        allowed = {version for version in acked[id_] | unknown[id_] if version.number >= last}
        found = stored.versions.get(id_)
        if found is None and last:
            yield f"subscription {id_} is lost"
        elif found is not None and found not in allowed:
            yield f"subscription {id_} is {found}, its last acknowledged version is {last}"
    exact = Counter[str]()
    for version in stored.versions.values():
        exact[version.currency] += version.mrr
    if dict(exact) != dict(stored.mrr):
        yield f"mrr is {dict(stored.mrr)}, stored subscriptions add up to {dict(exact)}"


def _users(history: History, stored: Stored) -> Iterator[str]:
    """Compare distinct users with those of the stored events; so few are counted exactly."""
    dated = {event.id for write in history.writes for event in write.events if event.is_dated}
    for name, reported, exact in (
        ("mau", stored.mau, {user for _, user, _ in stored.events}),
        ("dau", stored.dau, {user for id_, user, _ in stored.events if id_ in dated}),
    ):
        if reported != len(exact):
            yield f"{name} is {reported}, stored events have {len(exact)} users"


def _between(
    noun: str, least: AbstractSet[object], found: AbstractSet[object], most: AbstractSet[object]
) -> Iterator[str]:
    yield from (f"{noun} {each} was acknowledged and is lost" for each in least - found)
    yield from (f"{noun} {each} is stored and was refused or never sent" for each in found - most)


def _paid(writes: Iterable[Write], is_earned: bool) -> Iterator[Payment]:  # noqa: FBT001
    return (payment for write in writes for payment in write.payments if payment.is_earned is is_earned)


def _sums(payments: Iterable[Payment]) -> dict[str, int]:
    sums = Counter[str]()
    for payment in set(payments):
        sums[payment.currency] += payment.amount
    return dict(sums)


def _versions(writes: Iterable[Write]) -> defaultdict[str, set[Version]]:
    found = defaultdict[str, set[Version]](set)
    for write in writes:
        for version in write.versions:
            found[version.id].add(version)
    return found
