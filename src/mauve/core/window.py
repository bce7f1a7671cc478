"""A stretch of days, UTC, both ends included."""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple


class Window(NamedTuple):
    first: date
    last: date

    @property
    def length(self) -> int:
        """Return how many days there are in it."""
        return (self.last - self.first).days + 1

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range(self.length)]

    @property
    def before(self) -> "Window":
        """Return the window of equal length that ends on the day before this one begins."""
        return Window(self.first - timedelta(days=self.length), self.first - timedelta(days=1))


def today_at(now_ms: int) -> date:
    """Return the UTC day of a moment."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).date()


def halves_of(window: Window) -> tuple[Window, Window]:
    """Return the earlier and the later days of a window that has more than one."""
    middle = date.fromordinal((window.first.toordinal() + window.last.toordinal() + 1) // 2)
    return Window(window.first, middle - timedelta(days=1)), Window(middle, window.last)
