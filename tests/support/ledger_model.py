"""A naive model of the ledger, and the check that compares the real one with it."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

from hypothesis import strategies as st
from msgspec.structs import replace

from mauve.core.times import DAY_MS
from mauve.stores.ledger import Entry, Outcome, Payment, SubscriptionVersion
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database
from support.ledger_entries import mrr_of, totals

MIDNIGHT = 1_800_057_600_000
PROJECTS = ["a", "b"]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
AMOUNTS = st.sampled_from([0, 1, 1999, 2**31, 2**53 - 1])
CURRENCIES = st.sampled_from(["eur", "usd", "jpy"])

PAYMENTS = st.builds(
    Payment,
    org_id=st.just("org"),
    project=st.sampled_from(PROJECTS),
    id=st.sampled_from(["1", "2", "\0", "\\0", "👪"]),
    digest=st.sampled_from([b"", b"\0", b"x"]),
    claimed_at=st.sampled_from([None, 0, 1, 2**70]),
    amount=AMOUNTS,
    currency=CURRENCIES,
    earned=st.booleans(),
    user=st.none() | ANY_TEXT,
    occurred_at=st.sampled_from([MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + DAY_MS]),
    received_at=st.sampled_from([MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 30 * DAY_MS]),
    payload=st.binary(max_size=3),
    source=st.sampled_from(["api", "biller_a"]),
    part_of=st.sampled_from([None, None, None, "1", "2"]),
)
VERSIONS = st.builds(
    SubscriptionVersion,
    project=st.sampled_from(PROJECTS),
    id=st.sampled_from(["s", "t", "\0"]),
    at=st.integers(-2, 2),
    received_at=st.just(MIDNIGHT),
    status=st.sampled_from(["active", "canceled"]),
    mrr=AMOUNTS,
    currency=CURRENCIES,
    payload=st.just(b""),
    rank=st.sampled_from([b"", b"", b"\0", b"\0\0", b"a", b"\xff"]),
)
ENTRIES = st.builds(Entry, payments=st.lists(PAYMENTS, max_size=5), subscriptions=st.lists(VERSIONS, max_size=3))
GROUPS = st.lists(st.lists(ENTRIES, max_size=4), max_size=5)


class NaiveLedger:
    """Keeps everything and sums it on demand."""

    def __init__(self) -> None:
        self.standing: dict[tuple[str, str], Payment] = {}
        self.versions: list[SubscriptionVersion] = []

    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]:
        for entry in entries:
            self.versions += entry.subscriptions
        return [self._outcomes(entry.payments) for entry in entries]

    def _outcomes(self, payments: Sequence[Payment]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for place, payment in enumerate(payments):
            wholes = [
                outcome
                for other, outcome in zip(payments[:place], outcomes, strict=True)
                if (other.project, other.id) == (payment.project, payment.part_of)
            ]
            outcomes.append(self._outcome(payment, may_begin=payment.part_of is None or Outcome.ACCEPTED in wholes))
        return outcomes

    def _outcome(self, new: Payment, *, may_begin: bool) -> Outcome:
        old = self.standing.get((new.project, new.id))
        if old is None and not may_begin:
            return Outcome.CONFLICT
        if old is None:
            self.standing[new.project, new.id] = new
            return Outcome.ACCEPTED
        same_time = old.claimed_at is None or new.claimed_at is None or old.claimed_at == new.claimed_at
        same_time = same_time or new.source != "api"  # Billers report one payment at several times.
        return Outcome.DUPLICATE if old.digest == new.digest and same_time else Outcome.CONFLICT

    def day_totals(self, project: str, *, earned: bool) -> list[tuple[str, str, int]]:
        totals = Counter[tuple[str, str]]()
        for payment in self.standing.values():
            if payment.project == project and payment.earned == earned:
                day = datetime.fromtimestamp(payment.occurred_at / 1000, UTC).date().isoformat()
                totals[day, payment.currency] += payment.amount
        return sorted((*key, total) for key, total in totals.items())

    def current_mrr(self, project: str) -> list[tuple[str, int]]:
        current: dict[tuple[str, str], SubscriptionVersion] = {}
        for version in sorted(self.versions, key=lambda version: (version.at, version.rank)):  # a stable sort
            standing = current.get((version.project, version.id))
            if version.rank and standing and (standing.at, standing.rank) == (version.at, version.rank):
                continue  # a repeat
            current[version.project, version.id] = version
        sums = Counter[str]()
        for version in current.values():
            if version.project == project and version.status == "active":
                sums[version.currency] += version.mrr
        return sorted(sums.items())

    def usage(self) -> Counter[str]:
        return Counter(
            datetime.fromtimestamp(payment.received_at / 1000, UTC).strftime("%Y-%m")
            for payment in self.standing.values()
            if payment.source == "api"
        )


example_numbers = count()


def named(entry: Entry, prefix: str) -> Entry:
    """Return the entry with projects that no other example uses."""
    return Entry(
        [replace(item, project=prefix + item.project, org_id=prefix + item.org_id) for item in entry.payments],
        [replace(item, project=prefix + item.project) for item in entry.subscriptions],
    )


def check_that_it_ends_as_in_the_model(database: Database, groups: Sequence[Sequence[Entry]]) -> None:
    """Record the groups in projects that no other example uses, and compare everything readable."""
    writer, reader, loader = LedgerWriter(database), LedgerReader(database), LoadLedger(database)
    model = NaiveLedger()
    prefix = f"{next(example_numbers)}-"
    for group in groups:
        entries = [named(entry, prefix) for entry in group]
        # Copies: the model identifies the first payment by identity, and a drawn value may occur twice.
        copies = [dataclasses.replace(entry, payments=[replace(item) for item in entry.payments]) for entry in entries]
        assert writer.record(entries) == model.record(copies)
    for project in (prefix + name for name in PROJECTS):
        for earned in (True, False):
            found = totals(reader, project, earned=earned)
            assert found == model.day_totals(project, earned=earned)
        assert mrr_of(reader, project) == model.current_mrr(project)
    for period in ("2027-01", "2027-02"):
        assert loader.usage(period).get(f"{prefix}org", 0) == model.usage()[period]
    seen = {project for project in loader.first_seen() if project.startswith(prefix)}
    assert seen == {payment.project for payment in model.standing.values()}
