"""The three demo apps and their users: signups, returning users, and the events they send."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from math import exp
from random import Random
from typing import Final, NamedTuple

from mauve.core.app import AppType, Ownership
from mauve.core.window import midnight_ms, today_at

_SATURDAY: Final = 5
_HOUR_MIN, _HOUR_PEAK, _HOUR_MAX = 5, 14, 24
SIGNUP: Final = "user_signup"
_EVENTS_PER_DAY_MAX: Final = 7
_RETENTION: Final = 0.16  # the share of users active on a day, long after they signed up
_NEW_USER_BOOST: Final = 0.5  # added to it right after a signup
_BOOST_DECAY_DAYS: Final = 12.0


@dataclass(frozen=True, slots=True)
class Plan:
    price: int  # minor units, per `months`
    currency: str
    months: int = 1

    @property
    def mrr(self) -> int:
        """Return the monthly price, rounded half up as for billers' prices."""
        return (2 * self.price + self.months) // (2 * self.months)


@dataclass(frozen=True, slots=True)
class AppProfile:
    """How one demo app grows, what its users do, and how it earns money."""

    name: str
    type: AppType
    ownership: Ownership
    initial_users: int
    signups_per_day: float
    growth_per_day: float
    weekend_factor: float  # weekend activity relative to a weekday
    events: tuple[tuple[str, int], ...]  # names and relative frequencies
    plans: tuple[Plan, ...] = ()
    trial_rate: float = 0.0  # the share of signups that start a trial
    orders_per_day: float = 0.0  # for a marketplace
    order_currencies: tuple[str, ...] = ()


PROFILES: Final = (
    AppProfile(
        name="Aster Notes",
        type=AppType.SAAS,
        ownership=Ownership.MINE,
        initial_users=420,
        signups_per_day=14,
        growth_per_day=0.011,
        weekend_factor=0.45,
        events=(("note_opened", 60), ("note_created", 22), ("note_shared", 8), ("search", 14), ("export", 2)),
        plans=(Plan(900, "eur"), Plan(1900, "eur"), Plan(19_000, "eur", 12), Plan(1200, "usd"), Plan(4900, "usd")),
        trial_rate=0.16,
    ),
    AppProfile(
        name="Bramble Market",
        type=AppType.OTHER,
        ownership=Ownership.CLIENT_OPERATED,
        initial_users=900,
        signups_per_day=20,
        growth_per_day=0.004,
        weekend_factor=1.35,
        events=(("listing_viewed", 80), ("listing_saved", 9), ("message_sent", 12), ("checkout_started", 6)),
        orders_per_day=26,
        order_currencies=("eur", "eur", "usd"),
    ),
    AppProfile(
        name="Clover Kit",
        type=AppType.DESKTOP,
        ownership=Ownership.MINE,
        initial_users=150,
        signups_per_day=4,
        growth_per_day=-0.003,
        weekend_factor=0.7,
        events=(("app_started", 40), ("project_built", 25), ("update_installed", 3), ("crash_reported", 1)),
        plans=(Plan(500, "usd"), Plan(4800, "usd", 12)),
        trial_rate=0.22,
    ),
)


@dataclass(frozen=True, slots=True)
class DateRange:
    """A number of days that end today; the last day is still in progress."""

    now_ms: int
    length: int

    @property
    def days(self) -> list[date]:
        today = today_at(self.now_ms)
        return [today - timedelta(days=number) for number in range(self.length - 1, -1, -1)]


def is_weekend(day: date) -> bool:
    return day.weekday() >= _SATURDAY


def random_time_on(day: date, random: Random) -> int:
    """Return a random waking-hours time of the day, in epoch ms."""
    return midnight_ms(day) + int(random.triangular(_HOUR_MIN, _HOUR_MAX, _HOUR_PEAK) * 3_600_000) - 1


def random_count(expected: float, random: Random) -> int:
    """Return a random count around the expected value."""
    return max(0, round(random.gauss(expected, max(expected, 0.0) ** 0.5)))


class UserEvent(NamedTuple):
    name: str
    user: str
    at: int  # epoch ms


@dataclass(slots=True)
class Population:
    """All users of an app so far, each with the number of the day they signed up on."""

    profile: AppProfile
    random: Random
    users: list[tuple[str, int]]

    @classmethod
    def initial(cls, profile: AppProfile, random: Random) -> "Population":
        """Return the users who signed up before the history starts."""
        earlier = [(f"user_{number}", -random.randrange(1, 90)) for number in range(profile.initial_users)]
        return cls(profile, random, earlier)

    def events_on(self, number: int, day: date) -> Iterator[UserEvent]:
        """Yield the events of one day, and add the users who sign up on it."""
        yield from self._signups(number, day)
        factor = self.profile.weekend_factor if is_weekend(day) else 1.0
        for user, signup_day in self.users:
            if self.random.random() < factor * _activity_rate(number - signup_day):
                yield from self._activity(user, day)

    def _signups(self, number: int, day: date) -> Iterator[UserEvent]:
        factor = self.profile.weekend_factor if is_weekend(day) else 1.0
        expected = self.profile.signups_per_day * (1 + self.profile.growth_per_day) ** number * factor
        for _ in range(random_count(expected, self.random)):
            user = f"user_{len(self.users)}"
            self.users.append((user, number))
            yield UserEvent(SIGNUP, user, random_time_on(day, self.random))

    def _activity(self, user: str, day: date) -> Iterator[UserEvent]:
        names, weights = zip(*self.profile.events, strict=True)
        for name in self.random.choices(names, weights, k=self.random.randint(1, _EVENTS_PER_DAY_MAX)):
            yield UserEvent(name, user, random_time_on(day, self.random))


def _activity_rate(age_days: int) -> float:
    return _RETENTION + _NEW_USER_BOOST * exp(-age_days / _BOOST_DECAY_DAYS)
