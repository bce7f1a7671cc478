"""The made-up history: always the same for a seed, and such that every page has something to show."""

import pytest

from mauve.core.times import DAY_MS
from mauve.demo.calendar import Calendar, is_weekend
from mauve.demo.deliveries import deliveries_of
from mauve.demo.history import Place, history_of
from mauve.demo.stories import STORIES, Plan
from mauve.ingest.webhooks.signatures import Refusal
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.stores.deliveries import DeliveryResult

NOW = 1_800_000_000_000  # a Friday, 08:00 UTC
PLACE = Place("org_1", "proj_1")
ASTER, BRAMBLE, _ = STORIES


def told(story, days=21, seed="s"):
    return list(history_of(story, PLACE, Calendar(NOW, days), seed))


@pytest.fixture(scope="module")
def weeks():
    return told(ASTER, 70)


def test_the_same_seed_tells_the_same_story_and_another_one_another():
    assert told(ASTER) == told(ASTER)
    assert told(ASTER) != told(ASTER, seed="t")


def test_nothing_happens_after_now_or_before_the_first_day(weeks):
    moments = [each.at for day in weeks for each in day.occurrences]
    paid = [each.occurred_at for day in weeks for each in day.entry.payments]
    for found in (moments, paid):
        assert max(found) <= NOW
        assert min(found) >= NOW // DAY_MS * DAY_MS - 69 * DAY_MS
    assert max(each.at for day in weeks for each in day.entry.subscriptions) <= NOW * 1000


def test_it_grows_and_rests_on_weekends(weeks):
    people = [len({each.user for each in day.occurrences}) for day in weeks]
    whole_days = list(zip(Calendar(NOW, 70).days, people, strict=True))[:-1]
    assert sum(people[-28:]) > 1.3 * sum(people[:28])
    weekends = [count for day, count in whole_days if is_weekend(day)]
    weekdays = [count for day, count in whole_days if not is_weekend(day)]
    assert sum(weekends) / len(weekends) < 0.75 * sum(weekdays) / len(weekdays)


def test_there_are_two_currencies_and_every_status(weeks):
    payments = [each for day in weeks for each in day.entry.payments]
    assert {each.currency for each in payments} == {"eur", "usd"}
    assert len({each.id for each in payments}) == len(payments)
    statuses = {each.status for day in weeks for each in day.entry.subscriptions}
    assert statuses == {"trialing", "active", "past_due", "canceled"}


def test_a_marketplace_earns_its_fee_and_no_more():
    payments = {each.id: each for day in told(BRAMBLE) for each in day.entry.payments}
    gross = [each for each in payments.values() if not each.earned]
    assert gross
    for each in gross:
        assert payments[each.id.removesuffix("_gross")].amount == each.amount * 12 // 100


def test_a_year_is_counted_as_billers_years_are():
    assert (Plan(19_000, "eur", 12).mrr, Plan(18, "eur", 12).mrr, Plan(900, "eur").mrr) == (1583, 2, 900)


def test_the_words_said_of_deliveries_are_those_that_are_explained():
    entries = [each for story in STORIES for each in deliveries_of(story, PLACE, NOW)]
    said = {word for entry in entries if entry.delivery for word in entry.delivery.words}
    said |= {tally.word for entry in entries for tally in entry.tallies}
    assert said <= {*DeliveryResult, *DeliveryWarning, *Refusal}
    assert {"unusable", "refused", "fee_unknown"} <= said
