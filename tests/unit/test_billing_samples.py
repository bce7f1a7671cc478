"""Every published sample maps to what is published for it."""

import msgspec
import pytest

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.times import parse_time_us
from mauve.ingest.webhooks.parsed import ParsedPayment, ParsedSubscription, SkippedEvent
from mauve.stores.deliveries import DeliveryResult
from mauve.stores.ledger import Entry
from support.billing import EXPECTED, NOW, SAMPLES, mapped_for, parsed_event, provider_of, sample

NAMES = {
    action: [name for name, expected in EXPECTED.items() if expected["action"] == action]
    for action in ("payment", "subscription", "ack_only")
}
WARNINGS = {"zero_amount": ("zero_amount",), "thin_event": ("thin_event",), "unmapped": ()}


def test_there_is_an_expectation_for_every_sample():
    assert {path.stem for path in SAMPLES.glob("[!_]*.json")} == set(EXPECTED)
    assert all(NAMES.values())


@pytest.mark.parametrize("name", NAMES["payment"])
def test_a_payment_is_parsed_as_expected(name):
    expected, read = EXPECTED[name], parsed_event(provider_of(name), sample(name))
    assert isinstance(read, ParsedPayment)
    assert (read.id, read.amount.currency) == (expected["payment_id"], expected["currency"])
    assert read.amount.minor == expected.get("volume_minor", expected["revenue_minor"])
    assert (read.fee or read.amount).minor == expected["revenue_minor"]
    assert (read.fee is not None) == ("volume_minor" in expected)
    assert read.details["tax"] == expected["tax_minor"]
    assert read.details["subscription"] == expected["subscription"]
    assert read.warnings == ((expected["flag"],) if "flag" in expected else ())
    if "paid_at" in expected:
        assert read.paid_at == expected["paid_at"] * 1000


@pytest.mark.parametrize("name", NAMES["payment"])
def test_a_payment_makes_the_expected_rows(name):
    expected = EXPECTED[name]
    environment = Environment.LIVE if expected.get("livemode", True) else Environment.TEST
    mapped = mapped_for(provider_of(name), sample(name), environment=environment)
    money = {payment.earned: payment.amount for payment in mapped.entry.payments}
    volume = {False: expected["volume_minor"]} if "volume_minor" in expected else {}
    assert money == {True: expected["revenue_minor"]} | volume
    assert mapped.rows == len(money)
    assert mapped.truncated == tuple(expected.get("truncated", ()))
    for payment in mapped.entry.payments:
        kept = msgspec.json.decode(payment.payload)
        assert kept.get("truncated") == expected.get("truncated")
        assert kept["flags"] == ([expected["flag"]] if "flag" in expected else [])
        assert payment.user == (sample(name)["data"].get("object") or {}).get("customer", payment.user)
        assert payment.occurred_at <= NOW
    assert mapped.entry.delivery.result is DeliveryResult.STORED


@pytest.mark.parametrize("name", NAMES["subscription"])
def test_a_subscription_is_parsed_as_expected(name):
    expected, read = EXPECTED[name], parsed_event(provider_of(name), sample(name))
    assert isinstance(read, ParsedSubscription)
    version = expected["version"]
    assert read.at == (parse_time_us(version) if isinstance(version, str) else version * 1_000_000)
    assert (read.id, read.status, read.mrr.currency) == (expected["id"], expected["status"], expected["currency"])
    assert (read.mrr.minor, read.details["mrr_exact"]) == (expected["mrr_minor"], expected["mrr_exact"])
    assert list(read.warnings) == expected.get("flags", [])
    assert (read.status == "active") == expected["counts_toward_mrr"]


@pytest.mark.parametrize("name", NAMES["ack_only"])
def test_an_event_that_is_only_acknowledged_makes_no_row(name):
    read = parsed_event(provider_of(name), sample(name))
    assert read == SkippedEvent(DeliveryResult.IGNORED, WARNINGS[EXPECTED[name]["reason"]])
    assert mapped_for(provider_of(name), sample(name)).rows == 0


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("stripe_invoice_paid_testmode", Environment.LIVE),
        ("stripe_subscription_testmode", Environment.LIVE),
        ("stripe_invoice_paid_basic", Environment.TEST),
        ("stripe_invoice_paid_marketplace_destination_acacia", Environment.TEST),
        ("stripe_subscription_annual_qty3", Environment.TEST),
    ],
)
def test_a_delivery_for_the_other_environment_makes_no_row(name, environment):
    mapped = mapped_for(provider_of(name), sample(name), environment=environment)
    delivery = mapped.entry.delivery
    assert (mapped.rows, mapped.entry) == (0, Entry(delivery=delivery))
    assert (delivery.result, delivery.rows, delivery.warnings) == (DeliveryResult.IGNORED, 0, ("plane_mismatch",))


def test_a_skipped_delivery_for_the_other_environment_keeps_its_own_warnings():
    name = "stripe_invoice_paid_zero_trial"
    delivery = mapped_for(provider_of(name), sample(name), environment=Environment.TEST).entry.delivery
    assert (delivery.result, delivery.warnings) == (DeliveryResult.IGNORED, ("zero_amount", "plane_mismatch"))
    unusable = sample("stripe_invoice_paid_testmode") | {"data": {}}
    delivery = mapped_for(Provider.BILLER_A, unusable).entry.delivery
    assert (delivery.result, delivery.warnings) == (DeliveryResult.UNUSABLE, ("object_unusable", "plane_mismatch"))


@pytest.mark.parametrize("flag", [None, "false", 0, {}])
def test_a_flag_that_says_nothing_is_no_mismatch(flag):
    event = sample("stripe_invoice_paid_basic") | {"livemode": flag}
    for environment in Environment:
        assert mapped_for(Provider.BILLER_A, event, environment=environment).rows == 1
