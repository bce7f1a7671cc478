"""Biller B's orders and subscriptions, beyond the published samples."""

import pytest

from mauve.core.biller import Provider
from mauve.core.money import Money
from mauve.ingest.webhooks.parsed import ParsedPayment, ParsedSubscription, SkippedEvent
from mauve.stores.deliveries import DeliveryResult
from support.billing import NOW, mapped_for, parsed_event, sample

B = Provider.BILLER_B


def changed(name, fields):
    event = sample(name)
    for field, value in fields.items():
        if value is ...:
            event["data"].pop(field, None)
        else:
            event["data"][field] = value
    return event


def order_event(**fields):
    return changed("polar_order_paid_renewal", fields)


def subscription_event(**fields):
    return changed("polar_subscription_annual_seats3", fields)


def paid(**fields):
    read = parsed_event(B, order_event(**fields))
    assert isinstance(read, ParsedPayment), read
    return read


def subscribed(**fields):
    read = parsed_event(B, subscription_event(**fields))
    assert isinstance(read, ParsedSubscription), read
    return read


def unusable(word):
    return SkippedEvent(DeliveryResult.UNUSABLE, (word,))


class TestOrders:
    def test_the_amount_excludes_tax_whichever_fields_are_present(self):
        known = {"total_amount": 120, "tax_amount": 20, "amount": 99}
        assert paid(net_amount=101, **known).amount.minor == 101
        assert paid(net_amount=..., **known).amount.minor == 100
        assert paid(net_amount=None, **known | {"tax_amount": None}).amount.minor == 99
        assert paid(net_amount=..., total_amount=120, tax_amount=..., amount=...).amount.minor == 120

    @pytest.mark.parametrize("amount", [-1, 1.5, "5", True, 2**53])
    def test_an_invalid_amount_is_unusable(self, amount):
        assert parsed_event(B, order_event(net_amount=amount)) == unusable("amount_unusable")

    def test_more_tax_than_money_is_unusable(self):
        event = order_event(net_amount=..., total_amount=5, tax_amount=6)
        assert parsed_event(B, event) == unusable("amount_unusable")

    def test_the_billers_own_fee_is_not_a_marketplace_fee(self):
        mapped = mapped_for(B, order_event(platform_fee_amount=250, platform_fee_currency="usd"))
        assert [(row.amount, row.earned) for row in mapped.entry.payments] == [(3920, True)]

    def test_an_order_paid_from_balance_counts(self):
        assert paid(due_amount=0, applied_balance_amount=-4704).amount.minor == 3920

    @pytest.mark.parametrize("currency", [None, "zzz", 5])
    def test_a_currency_outside_iso_4217_is_unusable(self, currency):
        assert parsed_event(B, order_event(currency=currency)) == unusable("currency_unusable")

    @pytest.mark.parametrize("currency", ["JPY", "kwd", "eur"])
    def test_amounts_are_booked_unchanged_in_any_currency(self, currency):
        assert paid(currency=currency).amount == Money(3920, currency.lower())

    def test_the_time_is_that_of_the_envelope_or_the_order(self):
        event = order_event()
        assert parsed_event(B, event).paid_at == 1_792_995_200_512
        assert parsed_event(B, event | {"timestamp": None}).paid_at == 1_792_995_200_450
        assert parsed_event(B, order_event(modified_at=None) | {"timestamp": 5}).paid_at == 1_792_995_180_120
        bare = order_event(modified_at=None, created_at="yesterday") | {"timestamp": ""}
        assert mapped_for(B, bare).entry.payments[0].occurred_at == NOW

    def test_the_customer_is_the_billers_own_id(self):
        assert paid().user == "7f3b2c10-0000-4000-8000-000000000001"
        assert paid(customer_id=...).user == "7f3b2c10-0000-4000-8000-000000000001"
        assert paid(customer_id=..., customer=...).user is None

    @pytest.mark.parametrize("data", [None, 5, [], "x", ...])
    def test_an_event_without_a_valid_order_is_unusable(self, data):
        event = {"type": "order.paid"} | ({} if data is ... else {"data": data})
        assert parsed_event(B, event) == unusable("object_unusable")

    @pytest.mark.parametrize("type_", ["order.created", "order.updated", "order.paid.", "subscription", None, 5])
    def test_other_types_are_ignored(self, type_):
        assert parsed_event(B, order_event() | {"type": type_}) == SkippedEvent(DeliveryResult.IGNORED)

    def test_truncated_texts_are_named_by_their_path(self):
        long = "x" * 2000
        customer = {"id": "c", "name": long, "email": long, "external_id": long}
        mapped = mapped_for(B, order_event(customer=customer, billing_name=long, custom_field_data={"note": long}))
        assert mapped.truncated == ("customer.name", "customer.email", "billing_name", "custom_field_data.note")
        assert mapped.rows == 1


class TestSubscriptions:
    def test_customer_and_plan_are_named(self):
        assert subscribed(customer_id="c1", product={"name": "Pro"}).customer == "c1"
        assert subscribed(product={"name": "Pro"}).plan == "Pro"
        assert subscribed(product=None, product_id="p1").plan == "p1"
        assert subscribed(product=None, product_id=None).plan is None

    @pytest.mark.parametrize(
        ("amount", "interval", "count", "mrr"),
        [
            (100, "day", 1, 3042),
            (300, "week", 1, 1300),
            (1500, "week", 2, 3250),
            (999, "month", 1, 999),
            (9, "month", 6, 2),
            (18, "year", 1, 2),
            (35997, "year", None, 3000),
            (None, "month", 1, 0),
        ],
    )
    def test_every_interval_is_normalized_and_seats_are_in_the_amount(self, amount, interval, count, mrr):
        fields = {"amount": amount, "recurring_interval": interval, "recurring_interval_count": count, "seats": 3}
        assert subscribed(**fields).mrr.minor == mrr

    @pytest.mark.parametrize("interval", [None, ..., "fortnight", 5])
    def test_an_unknown_interval_adds_nothing_and_gives_a_warning(self, interval):
        read = subscribed(recurring_interval=interval)
        assert (read.mrr.minor, read.warnings) == (0, ("unknown_interval",))

    @pytest.mark.parametrize(
        ("fields", "word"),
        [
            ({"amount": -1}, "amount_unusable"),
            ({"amount": 1.5}, "amount_unusable"),
            ({"recurring_interval_count": 0}, "interval_unusable"),
            ({"currency": None}, "currency_unusable"),
            ({"status": None}, "status_unusable"),
            ({"id": ""}, "id_unusable"),
            ({"id": "x" * 256}, "id_unusable"),
        ],
    )
    def test_an_invalid_subscription_is_unusable(self, fields, word):
        assert parsed_event(B, subscription_event(**fields)) == unusable(word)

    def test_the_status_counts_and_not_the_name_of_the_event(self):
        event = subscription_event(status="active") | {"type": "subscription.revoked"}
        assert parsed_event(B, event).status == "active"

    def test_the_time_is_exact_to_the_microsecond(self):
        assert subscribed().at == 1_792_995_200_512_345
