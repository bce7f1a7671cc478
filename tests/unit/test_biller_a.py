"""Biller A's invoices and subscriptions, beyond the published samples."""

import copy

import pytest

from mauve.core.biller import Provider
from mauve.ingest.webhooks.parsed import ParsedPayment, ParsedSubscription, SkippedEvent
from mauve.stores.deliveries import DeliveryResult
from support.billing import NOW, mapped_for, parsed_event, sample

A = Provider.BILLER_A
MONTHLY = {"interval": "month", "interval_count": 1, "usage_type": "licensed"}


def invoice_event(**fields):
    """Return a paid invoice with some fields changed; `...` removes a field."""
    event = sample("stripe_invoice_paid_basic")
    change(event["data"]["object"], fields)
    return event


def change(obj, fields):
    for name, value in fields.items():
        if value is ...:
            obj.pop(name, None)
        else:
            obj[name] = value


def paid(**fields):
    read = parsed_event(A, invoice_event(**fields))
    assert isinstance(read, ParsedPayment)
    return read


def unusable(word):
    return SkippedEvent(DeliveryResult.UNUSABLE, (word,))


class TestAmounts:
    def test_the_amount_is_what_was_paid_or_the_total_or_what_was_due(self):
        known = {"total": 7, "amount_due": 9}
        assert paid(amount_paid=5, **known).amount.minor == 5
        assert paid(amount_paid=..., **known).amount.minor == 7
        assert paid(amount_paid=None, **known).amount.minor == 7
        assert paid(amount_paid=..., total=..., amount_due=9).amount.minor == 9

    def test_an_out_of_band_payment_counts_as_the_amount_due(self):
        assert paid(paid_out_of_band=True, amount_paid=0, amount_due=900).amount.minor == 900
        assert paid(paid_out_of_band=False, amount_paid=5, amount_due=900).amount.minor == 5

    @pytest.mark.parametrize("amount", [-1, 1.5, 4900.0, "4900", True, [], {}, 2**53, 10**30])
    def test_an_amount_that_is_not_whole_minor_units_is_unusable(self, amount):
        assert parsed_event(A, invoice_event(amount_paid=amount)) == unusable("amount_unusable")

    def test_a_missing_amount_is_unusable(self):
        event = invoice_event(amount_paid=..., total=..., amount_due=...)
        assert parsed_event(A, event) == unusable("amount_unusable")

    @pytest.mark.parametrize("currency", ["usd", "jpy", "kwd", "USD", "Kwd"])
    def test_amounts_are_booked_unchanged_for_any_number_of_digits(self, currency):
        read = paid(amount_paid=5120, currency=currency)
        assert (read.amount.minor, read.amount.currency) == (5120, currency.lower())

    @pytest.mark.parametrize("currency", [None, ..., "", "zzz", "dollars", 840, "\uff35\uff33\uff24", "us\u0000"])
    def test_a_currency_outside_iso_4217_is_unusable(self, currency):
        assert parsed_event(A, invoice_event(currency=currency)) == unusable("currency_unusable")

    def test_the_largest_amount_is_exact(self):
        assert paid(amount_paid=2**53 - 1).amount.minor == 2**53 - 1


class TestMarketplace:
    def test_the_fee_is_earned_and_the_gross_is_volume(self):
        mapped = mapped_for(A, invoice_event(amount_paid=1000, application_fee_amount=123))
        rows = [(row.id, row.amount, row.earned) for row in mapped.entry.payments]
        assert rows == [("stripe:in_1SmpBasic", 123, True), ("stripe:in_1SmpBasic:volume", 1000, False)]
        assert mapped.rows == 2

    @pytest.mark.parametrize("fee", [0, None, ...])
    def test_without_a_fee_all_of_it_is_earned(self, fee):
        (row,) = mapped_for(A, invoice_event(application_fee_amount=fee)).entry.payments
        assert (row.amount, row.earned) == (4704, True)

    @pytest.mark.parametrize("fee", [-1, 1.5, "5", True])
    def test_an_invalid_fee_is_unusable(self, fee):
        assert parsed_event(A, invoice_event(application_fee_amount=fee)) == unusable("amount_unusable")

    @pytest.mark.parametrize(
        ("account", "on_behalf_of", "fee", "warnings"),
        [
            ("acct_1", None, ..., ("fee_unknown",)),
            (None, "acct_1", ..., ("fee_unknown",)),
            (None, {"id": "acct_1"}, ..., ("fee_unknown",)),
            (None, None, ..., ()),
            ("acct_1", None, None, ()),
            ("acct_1", None, 5, ()),
        ],
    )
    def test_a_fee_that_may_be_hidden_gives_a_warning(self, account, on_behalf_of, fee, warnings):
        event = invoice_event(on_behalf_of=on_behalf_of, application_fee_amount=fee) | {"account": account}
        assert parsed_event(A, event).warnings == warnings

    def test_the_account_does_not_change_the_id(self):
        assert parsed_event(A, invoice_event() | {"account": "acct_1"}).id == "stripe:in_1SmpBasic"


class TestFieldsThatMoved:
    def test_the_new_place_is_read_first(self):
        parent = {"subscription_details": {"subscription": "sub_new"}}
        assert paid(parent=parent, subscription="sub_old").details["subscription"] == "sub_new"
        assert paid(parent=None, subscription="sub_old").details["subscription"] == "sub_old"
        assert paid(parent=..., subscription={"id": "sub_expanded"}).details["subscription"] == "sub_expanded"
        assert paid(parent=...).details["subscription"] is None

    def test_tax_is_read_from_each_of_its_fields(self):
        assert paid(total_taxes=[{"amount": 3}, {"amount": 4}], tax=99).details["tax"] == 7
        assert paid(total_taxes=..., total_tax_amounts=[{"amount": 5}]).details["tax"] == 5
        assert paid(total_taxes=..., tax=6).details["tax"] == 6
        assert paid(total_taxes=...).details["tax"] is None
        assert paid(total_taxes=[{"amount": "x"}]).details["tax"] is None

    def test_the_customer_may_be_an_object_or_an_account(self):
        assert paid(customer={"id": "cus_1"}).user == "cus_1"
        assert paid(customer=None, customer_account="acct_9").user == "acct_9"
        assert paid(customer=..., customer_account=...).user is None

    def test_the_time_is_that_of_the_payment_or_the_event_or_the_arrival(self):
        assert paid(status_transitions={"paid_at": 5}).paid_at == 5000
        for missing in (..., None, {}, {"paid_at": None}, {"paid_at": "5"}, {"paid_at": 10**20}):
            assert paid(status_transitions=missing).paid_at == 1_793_000_006_000
        event = invoice_event(status_transitions=...) | {"created": "2026-10-26T06:13:26Z"}
        assert parsed_event(A, event).paid_at is None
        assert mapped_for(A, event).entry.payments[0].occurred_at == NOW


class TestIds:
    @pytest.mark.parametrize("id_", [None, ..., "", 5, "x" * 256, "é" * 128])
    def test_an_invoice_with_an_invalid_id_is_unusable(self, id_):
        assert parsed_event(A, invoice_event(id=id_)) == unusable("id_unusable")

    def test_an_id_is_never_cut(self):
        assert paid(id="x" * 255).id == "stripe:" + "x" * 255

    def test_other_ids_are_never_cut(self):
        assert parsed_event(A, invoice_event(customer="c" * 256)) == unusable("id_unusable")

    @pytest.mark.parametrize("status", ["open", "draft", "void", 5])
    def test_an_invoice_that_is_not_paid_is_unusable(self, status):
        assert parsed_event(A, invoice_event(status=status)) == unusable("status_unusable")

    @pytest.mark.parametrize("data", [None, 5, [], "x", {"object": "charge"}])
    def test_an_event_without_a_valid_object_is_unusable(self, data):
        assert parsed_event(A, {"type": "invoice.paid", "data": {"object": data}}) == unusable("object_unusable")

    @pytest.mark.parametrize("event", [{}, {"type": None}, {"type": 5}, {"type": "invoice.paid2"}, {"type": "invoice"}])
    def test_other_types_are_ignored(self, event):
        assert parsed_event(A, event) == SkippedEvent(DeliveryResult.IGNORED)


def an_item(quantity=1, **price):
    known = {"unit_amount": 1000, "unit_amount_decimal": "1000", "currency": "usd", "recurring": MONTHLY}
    return {"quantity": quantity, "price": known | price}


def subscription_event(*items, **fields):
    event = sample("stripe_subscription_annual_qty3")
    event["data"]["object"]["items"]["data"] = list(items) or [an_item()]
    change(event["data"]["object"], fields)
    return event


def subscribed(*items, **fields):
    read = parsed_event(A, subscription_event(*items, **fields))
    assert isinstance(read, ParsedSubscription), read
    return read


class TestNames:
    def test_the_customer_is_the_billers_id(self):
        assert subscribed(customer="cus_1").customer == "cus_1"
        assert subscribed(customer={"id": "cus_2", "email": "ann@example.com"}).customer == "cus_2"
        assert subscribed(customer=None).customer is None

    def test_the_plan_is_what_the_owner_calls_its_prices_each_once(self):
        pro = an_item(id="price_1", nickname="Pro", lookup_key="pro_monthly")
        seats = an_item(id="price_2", nickname=None, lookup_key="seats")
        plain = {"price": {"id": "price_3", "nickname": ""}, "plan": {"nickname": None, "id": "plan_3"}}
        assert subscribed(pro, pro, seats, plain).plan == "Pro, seats, price_3"
        assert subscribed({"plan": {"id": "plan_1", "nickname": "Old"}}).plan == "Old"
        assert subscribed(an_item(id=None)).plan is None

    @pytest.mark.parametrize("name", ["n" * 129, "n" * 2000, "n" * 5000, {"a": 1}, 7])
    def test_a_plan_of_any_length_or_type_costs_no_subscription(self, name):
        plan = subscribed(an_item(nickname=name)).plan
        assert plan is None or plan == "n" * 127 + "…"


class TestMonthlyRevenue:
    @pytest.mark.parametrize(
        ("interval", "count", "unit", "mrr"),
        [
            ("day", 1, 100, 3042),  # 100 x 365 / 12 = 3041.67
            ("day", 30, 1000, 1014),  # 1013.89
            ("week", 1, 300, 1300),
            ("week", 2, 1500, 3250),
            ("month", 1, 999, 999),
            ("month", 3, 1000, 333),  # 333.33
            ("month", 6, 9, 2),  # 1.5: half up
            ("year", 1, 18, 2),  # 1.5: half up
            ("year", 1, 17, 1),  # 1.42
            ("year", 3, 36, 1),
            ("month", None, 5, 5),
        ],
    )
    def test_every_interval_is_normalized(self, interval, count, unit, mrr):
        item = an_item(unit_amount=unit, unit_amount_decimal=None)
        item["price"]["recurring"] = {"interval": interval, "interval_count": count}
        assert subscribed(item).mrr.minor == mrr

    def test_the_total_is_rounded_once(self):
        yearly = {"recurring": {"interval": "year"}, "unit_amount_decimal": "1000"}
        assert subscribed(*[an_item(**yearly)] * 3).mrr.minor == 250

    def test_items_may_have_different_intervals(self):
        yearly = an_item(recurring={"interval": "year"}, unit_amount_decimal="12000")
        assert subscribed(an_item(), yearly).mrr.minor == 2000

    def test_decimals_are_exact(self):
        assert subscribed(an_item(3, unit_amount=None, unit_amount_decimal="0.333333333333")).details["mrr_exact"] == (
            "999999999999/1000000000000"
        )
        assert subscribed(an_item(10**12, unit_amount=None, unit_amount_decimal="0.000000000001")).mrr.minor == 1

    @pytest.mark.parametrize(
        ("quantity", "packing", "packs"),
        [
            (10, {"divide_by": 3, "round": "up"}, 4),
            (10, {"divide_by": 3, "round": "down"}, 3),
            (9, {"divide_by": 3, "round": "up"}, 3),
            (0, {"divide_by": 3, "round": "up"}, 0),
            (None, {"divide_by": 5, "round": "up"}, 1),
            (None, {"divide_by": 5, "round": "down"}, 0),
            (7, None, 7),
        ],
    )
    def test_packed_quantities_are_divided_first(self, quantity, packing, packs):
        assert subscribed(an_item(quantity, transform_quantity=packing)).mrr.minor == packs * 1000

    def test_an_absent_quantity_is_one_and_zero_is_zero(self):
        absent = an_item()
        del absent["quantity"]
        assert [subscribed(item).mrr.minor for item in (absent, an_item(None), an_item(0))] == [1000, 1000, 0]

    @pytest.mark.parametrize(
        ("price", "warning"),
        [
            ({"recurring": MONTHLY | {"usage_type": "metered"}}, "metered"),
            ({"billing_scheme": "tiered", "unit_amount": None, "unit_amount_decimal": None}, "tiered"),
            ({"recurring": None}, "one_time"),
            ({"recurring": {"interval": "fortnight"}}, "unknown_interval"),
            ({"recurring": {}}, "unknown_interval"),
            ({"currency": "eur"}, "other_currency"),
            ({"unit_amount": None, "unit_amount_decimal": None}, "no_amount"),
        ],
    )
    def test_a_price_that_cannot_be_known_adds_nothing_and_gives_a_warning(self, price, warning):
        read = subscribed(an_item(**price), an_item())
        assert (read.mrr.minor, read.warnings) == (1000, (warning,))

    def test_a_tax_inclusive_price_gives_a_warning(self):
        read = subscribed(an_item(tax_behavior="inclusive"))
        assert (read.mrr.minor, read.warnings) == (1000, ("tax_inclusive",))

    def test_an_older_plan_is_read_like_a_price(self):
        plan = {"amount": 2400, "currency": "usd", "interval": "year", "interval_count": 2}
        assert subscribed({"plan": plan, "quantity": 3}).mrr.minor == 300
        assert (
            subscribed({"plan": plan | {"amount": None, "amount_decimal": "2400.5"}}).details["mrr_exact"] == "4801/48"
        )
        assert subscribed({"plan": plan | {"usage_type": "metered"}}).warnings == ("metered",)
        packed = plan | {"transform_usage": {"divide_by": 2, "round": "up"}}
        assert subscribed({"plan": packed, "quantity": 3}).mrr.minor == 200

    def test_the_oldest_subscriptions_have_a_plan_and_no_items(self):
        plan = {"amount": 500, "currency": "usd", "interval": "month"}
        assert subscribed(items=..., plan=plan, quantity=2).mrr.minor == 1000

    def test_a_subscription_without_items_has_no_mrr_and_a_warning(self):
        read = subscribed(items=..., plan=...)
        assert (read.mrr.minor, read.warnings) == (0, ("no_items",))

    def test_an_incomplete_list_of_items_gives_a_warning(self):
        assert subscribed(items={"data": [an_item()], "has_more": True}).warnings == ("items_incomplete",)

    @pytest.mark.parametrize(
        ("item", "word"),
        [
            (an_item(-1), "quantity_unusable"),
            (an_item(1.5), "quantity_unusable"),
            (an_item("2"), "quantity_unusable"),
            (an_item(transform_quantity={"divide_by": 0}), "quantity_unusable"),
            (an_item(transform_quantity={}), "quantity_unusable"),
            (an_item(unit_amount=-5, unit_amount_decimal="-5"), "amount_unusable"),
            (an_item(unit_amount=None, unit_amount_decimal=4.5), "amount_unusable"),
            (an_item(unit_amount=None, unit_amount_decimal="1e3"), "amount_unusable"),
            (an_item(unit_amount=None, unit_amount_decimal="9" * 30), "amount_unusable"),
            (an_item(2**53 - 1, unit_amount_decimal="9" * 20), "amount_unusable"),
            (an_item(recurring=MONTHLY | {"interval_count": 0}), "interval_unusable"),
            (an_item(recurring=MONTHLY | {"interval_count": 1.5}), "interval_unusable"),
        ],
    )
    def test_invalid_numbers_are_unusable(self, item, word):
        assert parsed_event(A, subscription_event(item)) == unusable(word)

    def test_an_invalid_decimal_falls_back_to_the_whole_number(self):
        assert subscribed(an_item(unit_amount_decimal="")).mrr.minor == 1000

    def test_the_currency_may_be_on_the_items_only(self):
        assert subscribed(currency=...).mrr.currency == "usd"
        assert parsed_event(A, subscription_event(an_item(currency=None), currency=...)) == unusable(
            "currency_unusable"
        )

    @pytest.mark.parametrize("item", [None, 5, "x", [], {}])
    def test_an_invalid_item_adds_nothing(self, item):
        assert subscribed(item, an_item()).mrr.minor == 1000


class TestStates:
    def test_a_subscription_with_paused_collection_is_paused_unless_it_has_ended(self):
        pause = {"behavior": "void", "resumes_at": None}
        assert subscribed(pause_collection=pause).status == "paused"
        assert subscribed(pause_collection=pause, status="canceled").status == "canceled"
        assert subscribed(pause_collection=None).status == "active"

    def test_an_unknown_status_is_kept(self):
        assert subscribed(status="quite_new").status == "quite_new"

    @pytest.mark.parametrize("status", [None, ..., "", 5, "x" * 129])
    def test_a_subscription_without_a_status_is_unusable(self, status):
        assert parsed_event(A, subscription_event(status=status)) == unusable("status_unusable")

    def test_an_unknown_subscription_event_is_mapped(self):
        event = subscription_event() | {"type": "customer.subscription.renamed"}
        assert parsed_event(A, event).mrr.minor == 1000

    def test_a_cancellation_comment_is_kept_truncated(self):
        mapped = mapped_for(A, subscription_event(cancellation_details={"comment": "x" * 1025, "reason": None}))
        assert (mapped.rows, mapped.truncated) == (1, ("cancellation_details.comment",))

    def test_an_event_without_a_time_counts_from_its_arrival(self):
        event = subscription_event() | {"created": None}
        (version,) = mapped_for(A, event).entry.subscriptions
        assert version.at == NOW * 1000


def test_parsing_does_not_change_the_event():
    event = subscription_event(an_item(2, transform_quantity={"divide_by": 2, "round": "up"}))
    before = copy.deepcopy(event)
    parsed_event(A, event)
    assert event == before
