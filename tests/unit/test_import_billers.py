"""Lists and CSV files of billers become the payments and subscriptions that their webhooks would be."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from mauve.core.app import Environment
from mauve.imports.chunks import summary_of
from mauve.imports.items import Bad, Money, Skipped, Target
from mauve.imports.run import FORMATS, BadRowsError
from mauve.ingest.webhooks.amounts import billed_from_decimal
from mauve.maintenance.errors import MaintenanceRefusedError

NOW_MS = 1_800_000_000_000
TARGET = Target("proj_1", "org_1", Environment.LIVE, NOW_MS, number=7)
PAYMENT_COLUMNS = (
    "id,Created date (UTC),Amount,Amount Refunded,Currency,Captured,Converted Amount,Fee,Mode,Status,Customer ID,"
    "Invoice ID"
)
INVOICE_COLUMNS = "id,Amount Due,Amount Paid,Currency,Customer,Date (UTC),Paid,Paid At (UTC),Subscription,Total,Status"
SUBSCRIPTION_COLUMNS = (
    "id,Customer ID,Plan,Quantity,Currency,Interval,Amount,Status,Created (UTC),Start (UTC),Trial End (UTC),"
    "Canceled At (UTC),Ended At (UTC)"
)


def items_of(format_, content):
    return list(FORMATS[format_].read(io.BufferedReader(io.BytesIO(content.encode())), TARGET))


def table(columns, *rows):
    sheet = io.StringIO()
    csv.writer(sheet).writerows([columns.split(","), *rows])
    return sheet.getvalue()


def ms(*parts):
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)


def paid(item):
    (payment,) = item.payments
    return payment.id, payment.amount, payment.currency, payment.user, payment.occurred_at, payment.earned


def refusal(format_, content):
    with pytest.raises(MaintenanceRefusedError) as caught:
        items_of(format_, content)
    return str(caught.value)


def an_invoice(**more):
    common = {"object": "invoice", "id": "in_1", "status": "paid", "currency": "eur", "created": 1_700_000_000}
    return {**common, "amount_paid": 1999, "customer": "cus_1", "livemode": True, **more}


@pytest.mark.parametrize(
    "page",
    [
        {"object": "list", "data": [an_invoice()], "has_more": True, "url": "/v1/invoices"},
        {"data": [an_invoice()], "has_more": True, "object": "list"},
        {"has_more": True, "object": "list", "data": [an_invoice()]},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_page_of_a_longer_stripe_list_is_refused(page, indent):
    assert "with 1 object and has_more: export all pages" in refusal("stripe", json.dumps(page, indent=indent))
    (whole,) = items_of("stripe", json.dumps({**page, "has_more": False}, indent=indent))
    assert isinstance(whole, Money)


def test_payments_of_the_dashboard_become_those_of_webhooks():
    day = "2026-06-05 20:38:34"
    rows = [
        ("ch_1", day, "3125.00", "0.00", "usd", "true", "3125.00", "90.93", "Live", "Paid", "cus_1", "in_1"),
        ("ch_2", "2026-06-05 20:38", "12,50", "0,00", "eur", "true", "12,50", "1", "Live", "succeeded", "", ""),
        ("ch_3", day, "5000", "5000", "jpy", "true", "5000", "1", "Live", "Refunded", "cus_3", ""),
        ("ch_4", day, "10.00", "0", "eur", "true", "10.00", "0", "Live", "Failed", "cus_4", ""),
        ("ch_5", day, "10.00", "0", "eur", "false", "10.00", "0", "Live", "Paid", "cus_5", ""),
    ]
    first, second, third, failed, uncaptured = items_of("stripe", table(PAYMENT_COLUMNS, *rows))
    at = ms(2026, 6, 5, 20, 38, 34)
    assert paid(first) == ("stripe:in_1", 312_500, "usd", "cus_1", at, True), "the id that the webhook has"
    assert paid(second) == ("stripe:ch_2", 1250, "eur", None, at - 34_000, True)
    assert paid(third) == ("stripe:ch_3", 5000, "jpy", "cus_3", at, True), "revenue is gross of refunds"
    assert isinstance(failed, Skipped)
    assert isinstance(uncaptured, Skipped)


def test_a_payment_from_the_dashboard_is_a_duplicate_of_the_webhook():
    row = ("ch_1", "2026-06-05 20:38:34", "19.99", "0", "eur", "true", "19.99", "1", "Live", "Paid", "cus_1", "in_1")
    (from_file,) = items_of("stripe", table(PAYMENT_COLUMNS, row))
    (from_api,) = items_of("stripe", json.dumps(an_invoice()))
    assert from_file.payments[0].digest == from_api.payments[0].digest


@pytest.mark.parametrize(
    ("format_", "content"),
    [
        ("stripe", json.dumps(an_invoice(created="x"))),
        ("stripe", json.dumps(an_invoice(created=None, status_transitions={"paid_at": -1}))),
        (
            "stripe",
            table(
                PAYMENT_COLUMNS,
                ("ch_1", "0001-01-01 00:00", "1.00", "0", "eur", "true", "1.00", "0", "Live", "Paid", "cus_1", ""),
            ),
        ),
        (
            "polar",
            json.dumps(
                {
                    "billing_reason": "purchase",
                    "id": "o1",
                    "status": "paid",
                    "currency": "usd",
                    "net_amount": 5,
                    "created_at": "0000-01-01",
                    "modified_at": "2026-09-01T00:00:00Z",
                }
            ),
        ),
    ],
)
def test_a_payment_without_a_readable_time_is_a_bad_row(format_, content):
    (item,) = items_of(format_, content)
    assert isinstance(item, Bad), "it is not booked on the day of the import"
    assert "the time is missing or cannot be read" in item.reason


@pytest.mark.parametrize("ended_at", [None, "x"])
def test_a_canceled_subscription_without_a_readable_end_is_a_bad_row(ended_at):
    plan = {"id": "pro", "amount": 1000, "currency": "eur", "interval": "month"}
    found = {"object": "subscription", "id": "sub_1", "status": "canceled", "created": 1_700_000_000, "plan": plan}
    (item,) = items_of("stripe", json.dumps({**found, "currency": "eur", "quantity": 1, "ended_at": ended_at}))
    assert isinstance(item, Bad), "it does not end on the day of the import"
    assert "the time of the cancellation" in item.reason


def test_payments_that_need_a_guess_are_bad_rows():
    def row(**more):
        cells = dict(zip(PAYMENT_COLUMNS.split(","), [""] * 12, strict=True))
        common = {"id": "ch_1", "Created date (UTC)": "2026-06-05 20:38:34", "Amount": "1.00", "Currency": "eur"}
        return {**cells, **common, "Status": "Paid", **more}

    def reason_of(**more):
        cells = row(**more)
        (item,) = items_of("stripe", table(",".join(cells), list(cells.values())))
        assert isinstance(item, Bad), more
        return item.reason

    assert "1234.50" in reason_of(Amount="1,234.50")
    assert "1234.50" in reason_of(Amount="1.234", Currency="eur")
    assert "UTC" in reason_of(**{"Created date (UTC)": "yesterday"})
    assert "'strange' is not known" in reason_of(Status="Strange")
    assert "marketplace" in reason_of(**{"Application Fee": "0.50"})
    assert "--test" in reason_of(Mode="Test")
    assert "currency_unusable" in reason_of(Currency="zzz")


def test_invoices_of_the_dashboard_are_booked_when_they_were_paid():
    rows = [
        (
            "in_1",
            "19.99",
            "19.99",
            "eur",
            "cus_1",
            "2026-06-01 08:00",
            "TRUE",
            "2026-06-05 20:38",
            "sub_1",
            "19.99",
            "paid",
        ),
        ("in_2", "5.00", "0.00", "eur", "cus_1", "2026-06-01 08:00", "FALSE", "", "sub_1", "5.00", "open"),
        ("in_3", "5.00", "0.00", "eur", "cus_1", "2026-06-01 08:00", "TRUE", "", "sub_1", "5.00", "paid"),
    ]
    first, unpaid, free = items_of("stripe", table(INVOICE_COLUMNS, *rows))
    assert paid(first) == ("stripe:in_1", 1999, "eur", "cus_1", ms(2026, 6, 5, 20, 38), True)
    assert isinstance(unpaid, Skipped)
    assert isinstance(free, Skipped)


def test_subscriptions_of_the_dashboard_become_their_presumed_history():
    began, trial, ended = "2026-01-01 10:00", "2026-01-15 10:00", "2026-05-01 10:00"
    rows = [
        ("sub_1", "cus_1", "pro", "1", "eur", "year", "120.00", "canceled", began, began, trial, ended, ended),
        ("sub_2", "cus_2", "pro", "3", "eur", "month", "10.00", "active", began, began, "", "", ""),
        ("sub_3", "cus_3", "", "1", "eur", "", "", "active", began, began, "", "", ""),
    ]
    first, seats, several = items_of("stripe", table(SUBSCRIPTION_COLUMNS, *rows))
    assert [(each.id, each.status, each.mrr, each.at // 1000) for each in first.subscriptions] == [
        ("stripe:sub_1", "trialing", 1000, ms(2026, 1, 1, 10)),
        ("stripe:sub_1", "active", 1000, ms(2026, 1, 15, 10)),
        ("stripe:sub_1", "canceled", 1000, ms(2026, 5, 1, 10)),
    ]
    assert "API" in seats.reason
    assert "API" in several.reason


def test_a_file_of_other_columns_is_refused_with_what_to_export():
    assert "'Currency'" in refusal("stripe", "id,Amount,Status,Created (UTC)\nch_1,1.00,Paid,2026-01-01\n")
    local = "id,Amount,Currency,Status,Created (Europe/Berlin)\nch_1,1.00,eur,Paid,2026-01-01\n"
    assert "in UTC" in refusal("stripe", local)
    assert "'id'" in refusal("stripe", "name,at\nview,2026-01-01\n")


@pytest.mark.parametrize(
    ("text", "currency", "units"),
    [
        *(("1234.50", "eur", 123_450), ("1234,50", "eur", 123_450), ("1234", "eur", 123_400), ("0.5", "eur", 50)),
        *(("5000", "jpy", 5000), ("5000.00", "jpy", 5000), ("5000", "isk", 500_000), ("1.234", "bhd", 1234)),
        *(("1,234", "eur", None), ("1.234", "eur", None), ("1,234", "bhd", None), ("5,000", "jpy", None)),
        *(("-1.00", "eur", None), ("", "eur", None), ("1 234,50", "eur", None), ("٣", "eur", None)),
    ],
)
def test_a_decimal_amount_is_exact_or_refused(text, currency, units):
    assert billed_from_decimal(text, currency) == units


def an_order(**more):
    common = {"id": "o1", "status": "paid", "billing_reason": "purchase", "currency": "usd", "customer_id": "c1"}
    times = {"created_at": "2026-06-05T20:38:34.000000Z", "modified_at": "2026-09-01T00:00:00Z"}
    return {**common, **times, "net_amount": 3920, "tax_amount": 784, "total_amount": 4704, **more}


def test_orders_of_polar_become_payments_when_they_were_made():
    orders = [an_order(), an_order(id="o2", status="partially_refunded"), an_order(id="o3", status="pending")]
    content = json.dumps({"items": orders, "pagination": {"total_count": 3, "max_page": 1}}, indent=1)
    first, refunded, pending = items_of("polar", content)
    assert paid(first) == ("polar:o1", 3920, "usd", "c1", ms(2026, 6, 5, 20, 38, 34), True)
    assert paid(refunded)[:2] == ("polar:o2", 3920)
    assert isinstance(pending, Skipped)
    lines = "".join(json.dumps(each) + "\n" for each in orders)
    assert [type(each) for each in items_of("polar", lines)] == [Money, Money, Skipped]


def test_subscriptions_of_polar_become_their_presumed_history():
    price = {"amount": 12_000, "currency": "usd", "recurring_interval": "year", "recurring_interval_count": 1}
    began = {"created_at": "2026-01-01T10:00:00Z", "started_at": "2026-01-01T10:00:01Z", "trial_end": None}
    ended = {"canceled_at": "2026-03-01T00:00:00Z", "ended_at": "2026-05-01T00:00:00Z", "modified_at": None}
    found = {"id": "s1", "status": "canceled", "customer_id": "c1", "product": {"name": "Pro"}} | price | began | ended
    (item,) = items_of("polar", json.dumps([found]))
    assert [(each.id, each.status, each.mrr, each.at // 1000) for each in item.subscriptions] == [
        ("polar:s1", "active", 1000, ms(2026, 1, 1, 10, 0, 1)),
        ("polar:s1", "canceled", 1000, ms(2026, 5, 1)),
    ]


def test_objects_of_polar_with_strange_values_are_bad_or_skipped():
    for name in ("id", "status", "created_at", "net_amount", "currency", "customer_id"):
        for value in (None, [], {}, 1.5, "", True):
            (item,) = items_of("polar", json.dumps(an_order(**{name: value})))
            assert isinstance(item, Bad | Skipped | Money), (name, value)
    for found in ({"recurring_interval": []}, {"recurring_interval": "month", "status": []}, {"id": 1}, [7]):
        (item,) = items_of("polar", json.dumps(found))
        assert isinstance(item, Bad), found


def test_a_page_of_a_longer_polar_list_is_refused():
    page = {"items": [an_order()], "pagination": {"total_count": 2, "max_page": 2}}
    assert "1 of 2" in refusal("polar", json.dumps(page))
    assert "1 of 2" in refusal("polar", json.dumps(dict(reversed(page.items())), indent=2))


def test_leaving_out_bad_rows_is_suggested_only_if_others_remain():
    def advice(*invoices):
        summary = summary_of(iter(items_of("stripe", "".join(json.dumps(each) + "\n" for each in invoices))))
        return str(BadRowsError("a.jsonl", summary))

    assert "--max-bad 1" in advice(an_invoice(), an_invoice(currency="zzz"))
    assert "--max-bad" not in advice(an_invoice(currency="zzz"), an_invoice(status="open"))
    assert "--format" in advice(an_invoice(currency="zzz"))
