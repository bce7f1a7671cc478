"""Deliveries arrive late, twice and in any order; the ledger ends up the same."""

from fractions import Fraction
from itertools import count

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from mauve.core.biller import Provider
from mauve.ingest.webhooks.parsed import ParsedSubscription
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.schema import day_totals, payments, subscription_versions, subscriptions
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.billing import NOW, NOW_S, mapped_for, parsed, parsed_event
from support.ledger_entries import mrr_of

A, B = Provider.BILLER_A, Provider.BILLER_B
STATUSES = st.sampled_from(["incomplete", "trialing", "active", "past_due", "canceled"])
MOMENTS = st.sampled_from([NOW_S - 1, NOW_S])
QUANTITIES = st.integers(0, 3)


def of_biller_a(event_id, type_, status, created, quantity, subscription):
    price = {"unit_amount": 1000, "currency": "eur", "recurring": {"interval": "month"}}
    data = {"id": subscription, "status": status, "currency": "eur"}
    data["items"] = {"data": [{"price": price, "quantity": quantity}]}
    type_ = f"customer.subscription.{type_}"
    return A, {"id": event_id, "type": type_, "created": created, "data": {"object": data}}


def of_biller_b(type_, status, created, changed, amount, subscription):
    data = {"id": subscription, "status": status, "amount": amount, "currency": "eur", "recurring_interval": "month"}
    data["modified_at"] = changed
    stamp = f"2026-10-26T06:13:{created % 60:02}.000001Z"
    return B, {"type": f"subscription.{type_}", "timestamp": stamp, "data": data}


def an_invoice(event_id, invoice):
    # An invoice is the same in every event that reports it.
    amount, fee = 100 * int(invoice[-1]), 10 if invoice == "in_2" else 0
    data = {"id": invoice, "amount_paid": amount, "currency": "eur", "status": "paid", "application_fee_amount": fee}
    data["status_transitions"] = {"paid_at": NOW_S - 60}
    return A, {"id": event_id, "type": "invoice.paid", "created": NOW_S, "data": {"object": data}}


EVENT_IDS = st.sampled_from(["evt_a", "evt_b", "evt_c", "evt_d"])
IDS = st.sampled_from(["sub_1", "sub_2"])
TYPES_A = st.sampled_from(["created", "updated", "deleted", "trial_will_end", "paused", "quite_new"])
TYPES_B = st.sampled_from(["created", "updated", "active", "canceled", "revoked"])
CHANGES = st.sampled_from([None, "2026-10-26T06:13:00Z", "2026-10-26T06:13:00.000001Z"])
HISTORIES = st.lists(
    st.builds(of_biller_a, EVENT_IDS, TYPES_A, STATUSES, MOMENTS, QUANTITIES, IDS)
    | st.builds(of_biller_b, TYPES_B, STATUSES, MOMENTS, CHANGES, QUANTITIES, IDS)
    | st.builds(an_invoice, EVENT_IDS, st.sampled_from(["in_1", "in_2", "in_3"])),
    max_size=8,
    # Event ids are unique: two events with the same id are one event, delivered twice.
    unique_by=lambda delivery: (delivery[1].get("id"), repr(delivery[1]) if delivery[0] is B else delivery[1]["id"]),
)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    opened = Database(sqlite_url(tmp_path_factory.mktemp("ledger") / "ledger.db"), busy_timeout_s=5)
    migrate(opened, LEDGER)
    yield opened
    opened.close()


numbers = count()


def entries_of(deliveries, project):
    """Map each delivery at its own time of arrival."""
    return [
        mapped_for(provider, event, project, received_at=NOW + place).entry
        for place, (provider, event) in enumerate(deliveries)
    ]


def recorded(database, project):
    """Return everything recorded for a project, except times of arrival."""
    rows = {}
    with database.reading() as tx:
        for table in (payments, day_totals, subscriptions, subscription_versions):
            found = tx.execute(sa.select(table).where(table.c.project == project)).mappings()
            hidden = {"project", "sequence", "received_at", "payload"}
            rows[table.name] = sorted(
                repr(sorted((name, value) for name, value in row.items() if name not in hidden)) for row in found
            )
    return rows


@settings(max_examples=150, deadline=None)
@given(history=HISTORIES, choices=st.data())
def test_any_order_and_repetition_of_deliveries_ends_the_same(database, history, choices):
    writer, reader = LedgerWriter(database), LedgerReader(database)
    repeated = history + choices.draw(st.lists(st.sampled_from(history), max_size=6) if history else st.just([]))
    shuffled = choices.draw(st.permutations(repeated))
    groups = choices.draw(st.integers(1, 4))
    one, two = (f"{next(numbers)}-{how}" for how in ("once", "again"))
    writer.record(entries_of(history, one))
    entries = entries_of(shuffled, two)
    for start in range(0, len(entries), groups):
        writer.record(entries[start : start + groups])
    assert recorded(database, two) == recorded(database, one)
    assert mrr_of(reader, two) == mrr_of(reader, one)


@settings(max_examples=150, deadline=None)
@given(history=HISTORIES)
def test_the_current_version_is_never_older_or_less_final_than_any_delivered_one(database, history):
    project = f"{next(numbers)}-final"
    LedgerWriter(database).record(entries_of(history, project))
    read = [parsed_event(provider, event) for provider, event in history]
    with database.reading() as tx:
        rows = tx.execute(sa.select(subscriptions).where(subscriptions.c.project == project))
        standing = {row.id: row for row in rows}
    for each in read:
        if isinstance(each, ParsedSubscription):
            row = standing[each.id]
            assert row.at >= each.at
            if row.at == each.at and each.status == "canceled" and each.id.startswith("stripe"):
                assert row.status == "canceled", "an ended subscription stays ended within its second"


INTERVALS = st.sampled_from(["day", "week", "month", "year"])
A_YEAR = {"day": 365, "week": 52, "month": 12, "year": 1}
DECIMALS = st.decimals(0, 10**9, places=6, allow_nan=False).map(str)
ITEMS = st.lists(st.tuples(DECIMALS, st.integers(0, 10_000), INTERVALS, st.integers(1, 36)), min_size=1, max_size=6)


@given(ITEMS)
def test_mrr_is_the_exact_sum_rounded_once_half_up(items):
    shaped = [
        {
            "quantity": quantity,
            "price": {"unit_amount_decimal": unit, "recurring": {"interval": interval, "interval_count": every}},
        }
        for unit, quantity, interval, every in items
    ]
    data = {"id": "sub_1", "status": "active", "currency": "eur", "items": {"data": shaped}}
    read = parsed_event(A, {"type": "customer.subscription.updated", "data": {"object": data}})
    annual = sum(Fraction(unit) * quantity * A_YEAR[interval] / every for unit, quantity, interval, every in items)
    assert Fraction(read.details["mrr_exact"]) == annual / 12
    assert -Fraction(1, 2) < read.mrr.minor - annual / 12 <= Fraction(1, 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["id", "status", "currency", "amount_paid", "net_amount", "amount", "items", "plan", "customer", "parent"]
FIELDS += ["recurring_interval", "application_fee_amount", "total_taxes", "status_transitions", "pause_collection"]
DATA = st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(["usd", "paid", "active", 5, "in_1"]))
TYPES = st.sampled_from(["invoice.paid", "customer.subscription.updated", "order.paid", "subscription.updated"])


@given(type_=TYPES, data=DATA | JSON, more=st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_any_event_content_is_parsed_without_failing(type_, data, more):
    for provider, shape in ((A, {"object": data}), (B, data)):
        event = more | {"type": type_, "data": shape}
        mapped = mapped_for(provider, event)
        assert mapped.rows in {0, 1, 2}


@given(st.binary(max_size=60) | JSON.map(repr).map(str.encode))
def test_any_signed_bytes_are_parsed_without_failing(body):
    for provider in (A, B):
        assert parsed(provider, body).type
