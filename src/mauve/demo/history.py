"""The complete history of one demo app, day by day, with simulated billing, as the stores accept it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from itertools import takewhile
from random import Random
from typing import Final, NamedTuple

import msgspec

from mauve.core.app import App
from mauve.core.biller import Provider
from mauve.core.times import DAY_MS
from mauve.core.window import midnight_ms
from mauve.demo.population import (
    SIGNUP,
    AppProfile,
    DateRange,
    Plan,
    Population,
    UserEvent,
    is_weekend,
    random_count,
    random_time_on,
)
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion

_TRIAL_DAYS: Final = 14
_MONTH_DAYS: Final = 30
_TRIAL_CONVERSION_RATE: Final = 0.62
_MONTHLY_CHURN_RATE: Final = 0.07
_PAYMENT_FAILURE_RATE: Final = 0.04  # of renewals, at the first attempt
_FEE_PERCENT: Final = 12
_ORDER_MIN, _ORDER_MAX, _ORDER_TYPICAL = 900, 24_000, 3_200
_HOUR_MS: Final = 3_600_000
_REFUSED_COUNT: Final = 3
_STORED, _IGNORED, _UNUSABLE = DeliveryResult.STORED, DeliveryResult.IGNORED, DeliveryResult.UNUSABLE
# Type, result, rows, warnings; oldest first.
_SUBSCRIPTION_DELIVERIES: Final = (
    ("customer.subscription.updated", _STORED, 1, ()),
    ("invoice.paid", _STORED, 1, ()),
    ("charge.succeeded", _IGNORED, 0, ()),
    ("invoice.paid", _STORED, 1, ()),
)
_MARKETPLACE_DELIVERIES: Final = (
    ("invoice.paid", _STORED, 2, ()),
    ("invoice.paid", _STORED, 1, ("fee_unknown",)),
    ("charge.succeeded", _IGNORED, 0, ()),
    ("invoice.paid", _UNUSABLE, 0, ("currency_unusable",)),
    ("invoice.paid", _STORED, 2, ()),
)
_SUBSCRIPTION_DAYS_MAX: Final = 730


class SubscriptionChange(NamedTuple):
    """The status of a subscription from a given time on."""

    id: str
    at: int  # epoch ms
    status: str
    plan: Plan


class PaymentReceived(NamedTuple):
    id: str
    user: str
    at: int  # epoch ms
    amount: int
    currency: str
    earned: bool = True


BillingEvent = SubscriptionChange | PaymentReceived


def subscription_events(profile: AppProfile, user: str, signed_up_at: int, random: Random) -> Iterator[BillingEvent]:
    """Yield the billing events of one user, in order and without end unless they cancel or never subscribe."""
    if not profile.plans or random.random() >= profile.trial_rate:
        return
    plan, id_ = random.choice(profile.plans), f"sub_{user}"
    yield SubscriptionChange(id_, signed_up_at, "trialing", plan)
    at = signed_up_at + _TRIAL_DAYS * DAY_MS
    if random.random() >= _TRIAL_CONVERSION_RATE:
        yield SubscriptionChange(id_, at, "canceled", plan)
        return
    yield SubscriptionChange(id_, at, "active", plan)
    yield from _renewals(id_, user, plan, at, random)


def _renewals(id_: str, user: str, plan: Plan, at: int, random: Random) -> Iterator[BillingEvent]:
    number = 0
    while True:
        number += 1
        if number > 1 and random.random() < _PAYMENT_FAILURE_RATE:
            yield SubscriptionChange(id_, at, "past_due", plan)
            at += 3 * DAY_MS
            yield SubscriptionChange(id_, at, "active", plan)
        yield PaymentReceived(f"{id_}_invoice_{number}", user, at, plan.price, plan.currency)
        at += plan.months * _MONTH_DAYS * DAY_MS
        if random.random() < _MONTHLY_CHURN_RATE * plan.months:
            yield SubscriptionChange(id_, at, "canceled", plan)
            return


def orders_on(profile: AppProfile, number: int, day: date, users: int, random: Random) -> Iterator[PaymentReceived]:
    """Yield two payments for each marketplace order of a day: the fee as revenue, the gross amount as volume."""
    factor = profile.weekend_factor if is_weekend(day) else 1.0
    expected = profile.orders_per_day * (1 + profile.growth_per_day) ** number * factor
    for order in range(random_count(expected, random) if profile.orders_per_day else 0):
        gross = int(random.triangular(_ORDER_MIN, _ORDER_MAX, _ORDER_TYPICAL))
        currency = random.choice(profile.order_currencies)
        id_, at, user = f"order_{day}_{order}", random_time_on(day, random), f"user_{random.randrange(users)}"
        yield PaymentReceived(id_, user, at, gross * _FEE_PERCENT // 100, currency)
        yield PaymentReceived(f"{id_}_gross", user, at, gross, currency, earned=False)


def recent_deliveries(profile: AppProfile, project: str, now_ms: int) -> list[Entry]:
    """Return recent webhook deliveries; a marketplace has some that need the owner's attention."""
    templates = _MARKETPLACE_DELIVERIES if profile.orders_per_day else _SUBSCRIPTION_DELIVERIES
    # The last one arrives now, after the signing secret was saved, so the secret is shown as verified.
    times = range(now_ms - (len(templates) - 1) * _HOUR_MS, now_ms + 1, _HOUR_MS)
    entries = [
        Entry(delivery=Delivery(project, Provider.BILLER_A, at, *each))
        for at, each in zip(times, templates, strict=True)
    ]
    return [*entries, *_refused_deliveries(profile, project, now_ms)]


def _refused_deliveries(profile: AppProfile, project: str, now_ms: int) -> list[Entry]:
    """Return deliveries with a wrong signature, of which only counts are stored."""
    if not profile.orders_per_day:
        return []
    last_at = now_ms - 2 * _HOUR_MS
    return [Entry(tallies=[Tally(project, Provider.BILLER_A, "signature_mismatch", _REFUSED_COUNT, last_at)])]


@dataclass(frozen=True, slots=True)
class Day:
    events: list[UserEvent]
    entry: Entry


def history_of(profile: AppProfile, app: App, dates: DateRange, seed: str) -> Iterator[Day]:
    """Yield every day up to now. The same seed always yields the same history."""
    random = Random(f"{seed}/{profile.name}")  # noqa: S311 - sample data, not secrets
    population = Population.initial(profile, random)
    first_ms = midnight_ms(dates.days[0])
    earlier = [
        event
        for user, signup_day in population.users
        for event in _billing_of(profile, user, first_ms + signup_day * DAY_MS, seed)
    ]
    # Subscriptions keep the versions from before the first day; payments start with it.
    pending = [each for each in earlier if isinstance(each, SubscriptionChange) or each.at >= first_ms]
    for number, day in enumerate(dates.days):
        events = [each for each in population.events_on(number, day) if each.at <= dates.now_ms]
        signups = [each for each in events if each.name == SIGNUP]
        pending += [each for signup in signups for each in _billing_of(profile, signup.user, signup.at, seed)]
        pending += orders_on(profile, number, day, len(population.users), random)
        ends_at = min(midnight_ms(day) + DAY_MS, dates.now_ms)
        yield Day(events, _entry([each for each in pending if each.at < ends_at], app))
        pending = [each for each in pending if each.at >= ends_at]


def _billing_of(profile: AppProfile, user: str, signed_up_at: int, seed: str) -> list[BillingEvent]:
    """Return the billing events of one user within two years of the signup."""
    random = Random(f"{seed}/{profile.name}/{user}")  # noqa: S311 - sample data, not secrets
    ends_at = signed_up_at + _SUBSCRIPTION_DAYS_MAX * DAY_MS
    return list(takewhile(lambda each: each.at < ends_at, subscription_events(profile, user, signed_up_at, random)))


def _entry(events: list[BillingEvent], app: App) -> Entry:
    return Entry(
        payments=[_payment(each, app) for each in events if isinstance(each, PaymentReceived)],
        subscriptions=[_version(each, app) for each in events if isinstance(each, SubscriptionChange)],
    )


def _payment(payment: PaymentReceived, app: App) -> Payment:
    payload = msgspec.json.encode(payment)
    return Payment(
        org_id=app.org_id,
        project=app.public_id,
        id=payment.id,
        digest=sha256(payload).digest(),
        claimed_at=payment.at,
        amount=payment.amount,
        currency=payment.currency,
        earned=payment.earned,
        user=payment.user,
        occurred_at=payment.at,
        received_at=payment.at,
        payload=payload,
    )


def _version(change: SubscriptionChange, app: App) -> SubscriptionVersion:
    return SubscriptionVersion(
        project=app.public_id,
        id=change.id,
        at=change.at * 1000,
        received_at=change.at,
        status=change.status,
        mrr=change.plan.mrr,
        currency=change.plan.currency,
        payload=msgspec.json.encode(change),
    )
