"""The writer's side of the ledger: one transaction for the entries of many requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mauve.core.window import period_of
from mauve.stores.deliveries import Delivery
from mauve.stores.ledger import CLIENT, Entry, Outcome, Payment, recorded_delivery
from mauve.stores.ledger.deliveries import add_tallies, record_deliveries
from mauve.stores.ledger.loading import append_events
from mauve.stores.ledger.payments import (
    Claim,
    PaymentKey,
    day_increases,
    insert_payments,
    lock_money,
    move_day_totals,
    outcome_of,
    raise_revisions,
    recorded_payments,
    take_over,
)
from mauve.stores.ledger.subscriptions import record_versions
from mauve.stores.ledger.usage import add_ingest_stats, add_usage, record_first_seen
from mauve.stores.sql.database import SqlStore

_Claims = dict[PaymentKey, Claim]


class LedgerWriter(SqlStore):
    """Ingest's writer of money.

    - `record` applies all entries in one transaction, durable when it returns. Outcomes are in the order of the
      payments, one list per entry. Transactions that change the money of one project run one after the other.
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
    - Deliveries and tallies are recorded as in `ledger.deliveries`, ingest stats as in `ledger.usage`. A
      delivery with payments in conflict is recorded as a conflict, with the rows that were accepted.
    """

    def record(self, entries: Sequence[Entry]) -> list[list[Outcome]]:
        keys = {(payment.project, payment.id) for entry in entries for payment in entry.payments}
        versions = [version for entry in entries for version in entry.subscriptions]
        with self._database.writing() as tx:
            lock_money(tx, {project for project, _ in keys} | {version.project for version in versions})
            recorded = recorded_payments(tx, keys)
            outcomes = _outcomes(entries, recorded)
            accepted = [payment for payment, outcome in _decided(entries, outcomes) if outcome is Outcome.ACCEPTED]
            take_over(tx, _imported_before(entries, outcomes, recorded))
            if accepted:
                insert_payments(tx, accepted)
                move_day_totals(tx, day_increases(accepted))
                add_usage(tx, _usage_of(accepted))
                record_first_seen(tx, _first_moments(accepted))
            record_versions(tx, versions)
            append_events(tx, [entry.events for entry in entries if entry.events is not None])
            record_deliveries(tx, _deliveries(entries, outcomes))
            add_tallies(tx, [tally for entry in entries for tally in entry.tallies])
            add_ingest_stats(tx, [entry.ingest_stats for entry in entries if entry.ingest_stats is not None])
            raise_revisions(tx, {each.project for each in accepted} | {each.project for each in versions})
        return outcomes


def _deliveries(entries: Sequence[Entry], outcomes: Sequence[Sequence[Outcome]]) -> list[Delivery]:
    deliveries = (recorded_delivery(entry, of_entry) for entry, of_entry in zip(entries, outcomes, strict=True))
    return [delivery for delivery in deliveries if delivery is not None]


def _decided(entries: Sequence[Entry], outcomes: Sequence[Sequence[Outcome]]) -> Iterator[tuple[Payment, Outcome]]:
    for entry, of_entry in zip(entries, outcomes, strict=True):
        yield from zip(entry.payments, of_entry, strict=True)


def _outcomes(entries: Sequence[Entry], recorded: _Claims) -> list[list[Outcome]]:
    """Decide in order: a new payment counts as recorded for later ones, even in the same entry."""
    return [_entry_outcomes(entry.payments, recorded) for entry in entries]


def _entry_outcomes(payments: Sequence[Payment], recorded: _Claims) -> list[Outcome]:
    outcomes: list[Outcome] = []
    accepted_here: set[PaymentKey] = set()
    for payment in payments:
        key = (payment.project, payment.id)
        outcome = outcome_of(payment, recorded.get(key))
        is_part = payment.part_of is not None
        if outcome is Outcome.ACCEPTED and is_part and (payment.project, payment.part_of) not in accepted_here:
            outcome = Outcome.CONFLICT
        if outcome is Outcome.ACCEPTED:
            recorded[key] = Claim(payment.digest, payment.claimed_at)
            accepted_here.add(key)
        outcomes.append(outcome)
    return outcomes


def _imported_before(
    entries: Sequence[Entry], outcomes: Sequence[Sequence[Outcome]], recorded: _Claims
) -> dict[PaymentKey, str]:
    """Return the sources of payments that only an import has recorded so far."""
    sources: dict[PaymentKey, str] = {}
    for payment, outcome in _decided(entries, outcomes):
        key = (payment.project, payment.id)
        if outcome is Outcome.DUPLICATE and recorded[key].is_imported:
            sources.setdefault(key, payment.source)
    return sources


def _usage_of(accepted: Iterable[Payment]) -> Counter[tuple[str, str]]:
    events: Counter[tuple[str, str]] = Counter()
    sent = Counter((item.org_id, item.received_at) for item in accepted if item.source == CLIENT)
    for (org_id, received_at), count in sent.items():
        events[org_id, period_of(received_at)] += count
    return events


def _first_moments(accepted: Iterable[Payment]) -> dict[str, int]:
    moments: dict[str, int] = {}
    for payment in accepted:
        moments[payment.project] = min(payment.received_at, moments.get(payment.project, payment.received_at))
    return moments
