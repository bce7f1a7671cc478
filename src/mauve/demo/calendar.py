"""The days of a made-up history."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Final

_SATURDAY: Final = 5
_DAWN_H, _NOON_H, _NIGHT_H = 5, 14, 24


@dataclass(frozen=True, slots=True)
class Calendar:
    """So many days up to a moment, the last of them not over yet."""

    now_ms: int
    length: int

    @property
    def days(self) -> list[date]:
        today = datetime.fromtimestamp(self.now_ms / 1000, UTC).date()
        return [today - timedelta(days=number) for number in range(self.length - 1, -1, -1)]


def is_weekend(day: date) -> bool:
    return day.weekday() >= _SATURDAY


def midnight_ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


def moment_on(day: date, random: Random) -> int:
    """Return a moment of the day, in epoch ms: people are awake."""
    return midnight_ms(day) + int(random.triangular(_DAWN_H, _NIGHT_H, _NOON_H) * 3_600_000) - 1


def about(expected: float, random: Random) -> int:
    """Return a whole number near the expected one, as chance has it."""
    return max(0, round(random.gauss(expected, max(expected, 0.0) ** 0.5)))
