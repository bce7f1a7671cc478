"""The complete history of one demo app, day by day, as the stores accept it."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from random import Random
from typing import Final

import msgspec

from mauve.core.times import DAY_MS
from mauve.core.window import midnight_ms
from mauve.demo.billing import BillingEvent, PaymentReceived, SubscriptionChange, orders_on, subscription_events
from mauve.demo.population import SIGNUP, DateRange, Population, UserEvent
from mauve.demo.profiles import AppProfile
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion

_SUBSCRIPTION_DAYS_MAX: Final = 730


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """The project that a history is stored in."""

    org_id: str
    project: str


@dataclass(frozen=True, slots=True)
class Day:
    events: list[UserEvent]
    entry: Entry


def history_of(profile: AppProfile, target: ProjectRef, dates: DateRange, seed: str) -> Iterator[Day]:
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
        yield Day(events, _entry([each for each in pending if each.at < ends_at], target))
        pending = [each for each in pending if each.at >= ends_at]


def _billing_of(profile: AppProfile, user: str, signed_up_at: int, seed: str) -> list[BillingEvent]:
    """Return the billing events of one user within two years of the signup."""
    random = Random(f"{seed}/{profile.name}/{user}")  # noqa: S311 - sample data, not secrets
    ends_at = signed_up_at + _SUBSCRIPTION_DAYS_MAX * DAY_MS
    return list(takewhile(lambda each: each.at < ends_at, subscription_events(profile, user, signed_up_at, random)))


def _entry(events: list[BillingEvent], target: ProjectRef) -> Entry:
    return Entry(
        payments=[_payment(each, target) for each in events if isinstance(each, PaymentReceived)],
        subscriptions=[_version(each, target) for each in events if isinstance(each, SubscriptionChange)],
    )


def _payment(payment: PaymentReceived, target: ProjectRef) -> Payment:
    payload = msgspec.json.encode(payment)
    return Payment(
        org_id=target.org_id,
        project=target.project,
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


def _version(change: SubscriptionChange, target: ProjectRef) -> SubscriptionVersion:
    return SubscriptionVersion(
        project=target.project,
        id=change.id,
        at=change.at * 1000,
        received_at=change.at,
        status=change.status,
        mrr=change.plan.mrr,
        currency=change.plan.currency,
        payload=msgspec.json.encode(change),
    )
