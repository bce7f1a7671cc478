"""Who signs up, who comes back, and what they do."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from math import exp
from random import Random
from typing import Final, NamedTuple

from mauve.demo.calendar import about, is_weekend, moment_on
from mauve.demo.stories import Story

SIGNUP: Final = "user_signup"
_EVENTS_A_DAY_MAX: Final = 7
_STAYING: Final = 0.16  # the part of users that comes on a day, however long ago they signed up
_CURIOUS: Final = 0.5  # and in the first days this many more
_CURIOUS_DAYS: Final = 12.0


class Occurrence(NamedTuple):
    name: str
    user: str
    at: int  # epoch ms


@dataclass(slots=True)
class Crowd:
    """The users of an app so far, with the day on which each signed up."""

    story: Story
    random: Random
    joined: list[tuple[str, int]]

    @classmethod
    def at_first(cls, story: Story, random: Random) -> "Crowd":
        long_ago = [(f"user_{number}", -random.randrange(1, 90)) for number in range(story.users_at_first)]
        return cls(story, random, long_ago)

    def day(self, number: int, day: date) -> Iterator[Occurrence]:
        """Yield what happens on one day; whoever signs up is in the crowd from then on."""
        yield from self._signups(number, day)
        pull = self.story.weekend if is_weekend(day) else 1.0
        for user, joined in self.joined:
            if self.random.random() < pull * _returning(number - joined):
                yield from self._doings(user, day)

    def _signups(self, number: int, day: date) -> Iterator[Occurrence]:
        pull = self.story.weekend if is_weekend(day) else 1.0
        expected = self.story.signups_a_day * (1 + self.story.growth_a_day) ** number * pull
        for _ in range(about(expected, self.random)):
            user = f"user_{len(self.joined)}"
            self.joined.append((user, number))
            yield Occurrence(SIGNUP, user, moment_on(day, self.random))

    def _doings(self, user: str, day: date) -> Iterator[Occurrence]:
        names, weights = zip(*self.story.events, strict=True)
        for name in self.random.choices(names, weights, k=self.random.randint(1, _EVENTS_A_DAY_MAX)):
            yield Occurrence(name, user, moment_on(day, self.random))


def _returning(age_days: int) -> float:
    return _STAYING + _CURIOUS * exp(-age_days / _CURIOUS_DAYS)
