"""The whole history of one app, day by day, in terms of what the stores take."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from random import Random

import msgspec

from mauve.core.times import DAY_MS
from mauve.demo.calendar import Calendar, midnight_ms
from mauve.demo.orders import orders_on
from mauve.demo.stories import Story
from mauve.demo.subscribers import Paid, State, subscriber
from mauve.demo.visitors import SIGNUP, Crowd, Occurrence
from mauve.stores.ledger import Entry, Payment, SubscriptionVersion


@dataclass(frozen=True, slots=True)
class Place:
    """Where an app's history is stored."""

    org_id: str
    project: str


@dataclass(frozen=True, slots=True)
class Day:
    occurrences: list[Occurrence]
    entry: Entry


def history_of(story: Story, place: Place, calendar: Calendar, seed: str) -> Iterator[Day]:
    """Yield every day up to now. The same seed tells the same story."""
    random = Random(f"{seed}/{story.name}")  # noqa: S311 - chance, not secrecy
    crowd = Crowd.at_first(story, random)
    first_ms = midnight_ms(calendar.days[0])
    earlier = [each for user, joined in crowd.joined for each in _life(story, user, first_ms + joined * DAY_MS, seed)]
    waiting: list[State | Paid] = [each for each in earlier if isinstance(each, State) or each.at >= first_ms]
    for number, day in enumerate(calendar.days):
        occurrences = [each for each in crowd.day(number, day) if each.at <= calendar.now_ms]
        signups = [each for each in occurrences if each.name == SIGNUP]
        waiting += [each for signup in signups for each in _life(story, signup.user, signup.at, seed)]
        waiting += orders_on(story, number, day, len(crowd.joined), random)
        ends_at = min(midnight_ms(day) + DAY_MS, calendar.now_ms)
        yield Day(occurrences, _entry([each for each in waiting if each.at < ends_at], place))
        waiting = [each for each in waiting if each.at >= ends_at]


def _life(story: Story, user: str, signed_up_at: int, seed: str) -> list[State | Paid]:
    """Return what becomes of one subscriber within two years."""
    random = Random(f"{seed}/{story.name}/{user}")  # noqa: S311 - chance, not secrecy
    life = subscriber(story, user, signed_up_at, random)
    return list(takewhile(lambda each: each.at < signed_up_at + 730 * DAY_MS, life))


def _entry(happened: list[State | Paid], place: Place) -> Entry:
    return Entry(
        payments=[_payment(each, place) for each in happened if isinstance(each, Paid)],
        subscriptions=[_version(each, place) for each in happened if isinstance(each, State)],
    )


def _payment(paid: Paid, place: Place) -> Payment:
    payload = msgspec.json.encode(paid)
    return Payment(
        org_id=place.org_id,
        project=place.project,
        id=paid.id,
        digest=sha256(payload).digest(),
        claimed_at=paid.at,
        amount=paid.amount,
        currency=paid.currency,
        earned=paid.earned,
        user=paid.user,
        occurred_at=paid.at,
        received_at=paid.at,
        payload=payload,
    )


def _version(state: State, place: Place) -> SubscriptionVersion:
    return SubscriptionVersion(
        project=place.project,
        id=state.id,
        at=state.at * 1000,
        received_at=state.at,
        status=state.status,
        mrr=state.plan.mrr,
        currency=state.plan.currency,
        payload=msgspec.json.encode(state),
    )
