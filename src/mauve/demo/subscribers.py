"""Trials, subscriptions, renewals and their ends."""

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from mauve.core.times import DAY_MS
from mauve.demo.stories import Plan, Story

_TRIAL_DAYS: Final = 14
_MONTH_DAYS: Final = 30
_STAYS: Final = 0.62  # after the trial
_CHURN_A_MONTH: Final = 0.07
_FAILS: Final = 0.04  # of renewals, at first


class State(NamedTuple):
    """A subscription from a moment on."""

    id: str
    at: int  # epoch ms
    status: str
    plan: Plan


class Paid(NamedTuple):
    id: str
    user: str
    at: int  # epoch ms
    amount: int
    currency: str
    earned: bool = True


def subscriber(story: Story, user: str, signed_up_at: int, random: Random) -> Iterator[State | Paid]:
    """Yield the life of one subscription, without an end: the caller stops at now. Nothing if there is none."""
    if not story.plans or random.random() >= story.converts:
        return
    plan, id_ = random.choice(story.plans), f"sub_{user}"
    yield State(id_, signed_up_at, "trialing", plan)
    at = signed_up_at + _TRIAL_DAYS * DAY_MS
    if random.random() >= _STAYS:
        yield State(id_, at, "canceled", plan)
        return
    yield State(id_, at, "active", plan)
    yield from _renewals(id_, user, plan, at, random)


def _renewals(id_: str, user: str, plan: Plan, at: int, random: Random) -> Iterator[State | Paid]:
    number = 0
    while True:
        number += 1
        if number > 1 and random.random() < _FAILS:
            yield State(id_, at, "past_due", plan)
            at += 3 * DAY_MS
            yield State(id_, at, "active", plan)
        yield Paid(f"{id_}_invoice_{number}", user, at, plan.price, plan.currency)
        at += plan.months * _MONTH_DAYS * DAY_MS
        if random.random() < _CHURN_A_MONTH * plan.months:
            yield State(id_, at, "canceled", plan)
            return
