"""Dates of the demo's history, and random times and counts on them."""

from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Final

from mauve.core.window import midnight_ms, today_at

_SATURDAY: Final = 5
_HOUR_MIN, _HOUR_PEAK, _HOUR_MAX = 5, 14, 24


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
