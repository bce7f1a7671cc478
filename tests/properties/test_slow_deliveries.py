"""Search for signed deliveries that are slow to parse. Compare CPU time with that of one plain walk over a body.

Proves: slow-deliveries.
"""

import copy
import sys
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from mauve.core.biller import Provider
from mauve.ingest.webhooks.bounded_json import TOKENS_MAX
from mauve.ingest.webhooks.endpoint import BODY_BYTES_MAX
from support.billing import mapped_for
from support.hostile_deliveries import (
    DECIMALS,
    PADDING,
    filled,
    item,
    many_values,
    subscription_a,
    subscription_b,
    written,
)

A, B = Provider.BILLER_A, Provider.BILLER_B
TRIES = 5
REFUSAL_WALKS_MAX = 3  # Measured: less than one. Each of these bodies once took six to twenty.
CALL_WALKS_MAX = 4  # Measured: at most two.
WALKS_MAX = 50  # Measured: about twenty at most, in several steps. 200 items with long numbers once took thousands.

INVOICE = {"id": "evt_1", "type": "invoice.paid", "created": 1_793_000_000}
INVOICE["data"] = {"object": {"id": "in_1", "status": "paid", "currency": "eur", "amount_paid": 100}}
ORDER = {"type": "order.paid", "timestamp": "2026-10-26T06:13:20Z"}
ORDER["data"] = {"id": "ord_1", "currency": "eur", "net_amount": 100}
EVENTS = [(A, INVOICE), (A, subscription_a([item()])), (B, ORDER), (B, subscription_b())]
FIELDS_A = [
    *("id", "status", "currency", "customer", "parent", "items", "plan", "total_taxes", "pause_collection"),
    *("customer_name", "customer_address", "description", "amount_paid", "lines", "metadata", "cancellation_details"),
]
FIELDS_B = [
    *("id", "status", "currency", "customer", "amount", "net_amount", "tax_amount", "product", "metadata", "prices"),
    *("recurring_interval_count", "modified_at", "billing_name", "billing_address", "custom_field_data"),
]
PLACES = {
    A: [("id",), ("created",), ("request",), ("data",), ("data", "previous_attributes")]
    + [("data", "object", name) for name in FIELDS_A],
    B: [("type",), ("timestamp",), ("more",), ("data",)] + [("data", name) for name in FIELDS_B],
}


@pytest.fixture(scope="module")
def walk_s():
    """Return the CPU seconds of one walk over a body of maximum size, the best of several runs."""
    body = b"[" + b"0," * (BODY_BYTES_MAX // 2) + b"0]"
    return min(cpu_s(lambda: msgspec.json.decode(body, type=msgspec.Raw)) for _ in range(5))


def cpu_s(work):
    began = time.thread_time()
    work()
    return time.thread_time() - began


def check(provider, body, walk_s):
    """Map a delivery; it must be acknowledged and cost no more than a few walks over it."""
    assert len(body) <= BODY_BYTES_MAX
    rows = []
    walks = cpu_s(lambda: rows.append(mapped_for(provider, body).rows)) / walk_s
    # Another process may interrupt a run; only a repeated slow run counts.
    if walks > WALKS_MAX:
        walks = min(cpu_s(lambda: mapped_for(provider, body)) / walk_s for _ in range(3))
    assert rows[0] in {0, 1}
    assert walks <= WALKS_MAX, f"{walks:.0f} walks"
    return walks


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_padding_makes_a_delivery_slow(walk_s, data):
    provider, event = data.draw(st.sampled_from(EVENTS))
    place = data.draw(st.sampled_from(PLACES[provider]))
    padding = PADDING[data.draw(st.sampled_from(sorted(PADDING)))]
    flaw = data.draw(st.sampled_from([b"", rb"\ud83d", b"\xff"]))
    body = filled(copy.deepcopy(event), place, padding, BODY_BYTES_MAX - 64)
    target(check(provider, body[:-1] + b',"flaw":"' + flaw + b'"}', walk_s))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    count=st.sampled_from([1, 20, 200, 201, 400]),
    digits=st.sampled_from([1, 5, 19, 31, 33, 4_200]),
    unit=st.sampled_from(["1000", "9" * 20 + "." + "7" * 20, *DECIMALS]),
)
def test_no_number_in_a_subscription_makes_it_slow(walk_s, count, digits, unit):
    counts = [str(10 ** (digits - 1) + 2 * number + 1) for number in range(count)]
    target(check(A, written(subscription_a([item(each, unit) for each in counts])), walk_s))
    check(B, written(subscription_b(recurring_interval_count=f"digits:{counts[-1]}", amount=f"digits:{unit}")), walk_s)


@pytest.mark.parametrize("name", sorted(PADDING))
def test_every_padding_is_cheap_where_it_is_read(walk_s, name):
    for provider, event, place in (
        (A, INVOICE, ("data", "object", "description")),
        (A, INVOICE, ("data", "object", "total_taxes")),
        (A, subscription_a([item()]), ("data", "object", "items", "data")),
        (B, ORDER, ("data", "custom_field_data")),
    ):
        check(provider, filled(copy.deepcopy(event), place, PADDING[name]), walk_s)


@pytest.mark.parametrize("name", sorted(many_values()))
def test_a_body_full_of_values_is_refused_before_it_is_walked(walk_s, name):
    provider, body = A, many_values()[name]
    assert BODY_BYTES_MAX * 0.99 < len(body) <= BODY_BYTES_MAX
    assert mapped_for(provider, body).entry.delivery.warnings == ("not_read",)
    assert min(cpu_s(lambda: mapped_for(provider, body)) for _ in range(TRIES)) / walk_s < REFUSAL_WALKS_MAX


@pytest.mark.parametrize("filler", [b"x", rb"\n", rb"\ud83d"])
@pytest.mark.parametrize(
    "values",
    [
        b",".join([PADDING["deeply nested"]] * (TOKENS_MAX // 910)),
        b",".join([b"[]"] * (TOKENS_MAX // 2 - 100)),
        b",".join([b"0"] * (TOKENS_MAX - 100)),
        b",".join([b'""'] * (TOKENS_MAX // 3 - 100)),
    ],
    ids=["nested", "lists", "zeros", "texts"],
)
def test_no_step_takes_long_with_the_maximum_number_of_values(walk_s, values, filler):
    """During a call into C, no other thread can run."""
    frame = written(subscription_a("FILL"))
    text = filler * ((BODY_BYTES_MAX - len(frame) - len(values)) // len(filler))
    body = frame.replace(b'"FILL"', b'[%s,"%s"]' % (values, text))
    assert BODY_BYTES_MAX * 0.99 < len(body) <= BODY_BYTES_MAX
    assert mapped_for(A, body).entry.delivery.warnings == ("items_too_many",)
    assert min(longest_call_s(lambda: mapped_for(A, body)) for _ in range(TRIES)) / walk_s < CALL_WALKS_MAX


def longest_call_s(work):
    """Return the CPU seconds of the longest single call into C."""
    began, longest = [], 0.0

    def note(_frame, event, _argument):
        nonlocal longest
        if event == "c_call":
            began.append(time.thread_time())
        elif event in {"c_return", "c_exception"} and began:
            longest = max(longest, time.thread_time() - began.pop())

    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(earlier)
    return longest
