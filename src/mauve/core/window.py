"""Windows of UTC days, weeks, and billing periods. A period is a calendar month."""

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from mauve.core.times import DAY_MS

DAY: Final = timedelta(days=1)
_SUNDAY: Final = 7
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


class Window(NamedTuple):
    first: date
    last: date

    @property
    def length(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range(self.length)]

    @property
    def before(self) -> "Window":
        """Return the window of equal length that ends on the day before this one begins."""
        return Window(self.first - timedelta(days=self.length), self.first - DAY)


def today_at(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / 1000, UTC).date()


def midnight_ms(day: date) -> int:
    return (day.toordinal() - _EPOCH_ORDINAL) * DAY_MS


def month_start_at(moment_ms: int) -> date:
    """Return the first UTC day of the month of a time."""
    return today_at(moment_ms).replace(day=1)


def month_starts_between(first_ms: int, last_ms: int) -> list[date]:
    """Return the first UTC days of the months of two times and of all between them."""
    first, last = month_start_at(first_ms), month_start_at(last_ms)
    months = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    return [date(month // 12, month % 12 + 1, 1) for month in months]


def halves_of(window: Window) -> tuple[Window, Window]:
    """Return the earlier and the later half of a window of at least two days."""
    middle = date.fromordinal((window.first.toordinal() + window.last.toordinal() + 1) // 2)
    return Window(window.first, middle - DAY), Window(middle, window.last)


def sunday_of(day: date) -> date:
    """Return the last day of a day's week, Monday to Sunday."""
    return date.fromordinal(min(day.toordinal() + _SUNDAY - day.isoweekday(), date.max.toordinal()))


def whole_weeks_in(window: Window) -> Window | None:
    """Return the whole weeks, Monday to Sunday, inside a window; None if there are none."""
    first = window.first.toordinal() + (1 - window.first.isoweekday()) % _SUNDAY
    last = window.last.toordinal() - window.last.isoweekday() % _SUNDAY
    return Window(date.fromordinal(first), date.fromordinal(last)) if first < last else None


_HOUR_MS: Final = 3_600_000


def period_of(moment_ms: int) -> str:
    """Return the period of a time, such as `2026-11`."""
    return _period_of_hour(moment_ms // _HOUR_MS)


@lru_cache(maxsize=256)
def _period_of_hour(hour: int) -> str:
    """Return the period of an hour, which never spans two. Cached: every request under a cap needs it."""
    return datetime.fromtimestamp(hour * _HOUR_MS // 1000, UTC).strftime("%Y-%m")


def period_ends_at(moment_ms: int) -> int:
    """Return when the period of a time ends, in epoch milliseconds: the start of the next one."""
    now = datetime.fromtimestamp(moment_ms / 1000, UTC)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)  # noqa: PLR2004 - December
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000
