"""The demo's history: the same for the same seed, with something to show on every page."""

from types import SimpleNamespace

import pytest

from mauve.core.times import DAY_MS
from mauve.demo.history import history_of, recent_deliveries
from mauve.demo.population import PROFILES, DateRange, Plan, is_weekend
from mauve.ingest.webhooks.parsed import DeliveryWarning
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.stores.deliveries import DeliveryResult

NOW = 1_800_000_000_000  # a Friday, 08:00 UTC
TARGET = SimpleNamespace(org_id="org_1", public_id="proj_1")
ASTER, BRAMBLE, _ = PROFILES


def generate(profile, days=21, seed="s"):
    return list(history_of(profile, TARGET, DateRange(NOW, days), seed))


@pytest.fixture(scope="module")
def weeks():
    return generate(ASTER, 70)


def test_the_same_seed_yields_the_same_history_and_another_seed_a_different_one():
    assert generate(ASTER) == generate(ASTER)
    assert generate(ASTER) != generate(ASTER, seed="t")


def test_nothing_happens_after_now_or_before_the_first_day(weeks):
    times = [each.at for day in weeks for each in day.events]
    paid = [each.occurred_at for day in weeks for each in day.entry.payments]
    for found in (times, paid):
        assert max(found) <= NOW
        assert min(found) >= NOW // DAY_MS * DAY_MS - 69 * DAY_MS
    assert max(each.at for day in weeks for each in day.entry.subscriptions) <= NOW * 1000


def test_activity_grows_and_drops_on_weekends(weeks):
    active_users = [len({each.user for each in day.events}) for day in weeks]
    whole_days = list(zip(DateRange(NOW, 70).days, active_users, strict=True))[:-1]
    assert sum(active_users[-28:]) > 1.3 * sum(active_users[:28])
    weekends = [count for day, count in whole_days if is_weekend(day)]
    weekdays = [count for day, count in whole_days if not is_weekend(day)]
    assert sum(weekends) / len(weekends) < 0.75 * sum(weekdays) / len(weekdays)


def test_there_are_two_currencies_and_every_status(weeks):
    payments = [each for day in weeks for each in day.entry.payments]
    assert {each.currency for each in payments} == {"eur", "usd"}
    assert len({each.id for each in payments}) == len(payments)
    statuses = {each.status for day in weeks for each in day.entry.subscriptions}
    assert statuses == {"trialing", "active", "past_due", "canceled"}


def test_a_marketplace_earns_only_its_fee():
    payments = {each.id: each for day in generate(BRAMBLE) for each in day.entry.payments}
    gross = [each for each in payments.values() if not each.earned]
    assert gross
    for each in gross:
        assert payments[each.id.removesuffix("_gross")].amount == each.amount * 12 // 100


def test_a_yearly_price_is_rounded_as_for_billers():
    assert (Plan(19_000, "eur", 12).mrr, Plan(18, "eur", 12).mrr, Plan(900, "eur").mrr) == (1583, 2, 900)


def test_deliveries_use_only_documented_results_and_warnings():
    entries = [each for profile in PROFILES for each in recent_deliveries(profile, TARGET.public_id, NOW)]
    words = {word for entry in entries if entry.delivery for word in entry.delivery.words}
    words |= {tally.word for entry in entries for tally in entry.tallies}
    assert words <= {*DeliveryResult, *DeliveryWarning, *SignatureFailure}
    assert {"unusable", "signature_mismatch", "fee_unknown"} <= words
