"""A stretch of days, UTC, both ends included."""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple


class Window(NamedTuple):
    first: date
    last: date


def today_at(now_ms: int) -> date:
    """Return the UTC day of a moment."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).date()


def halves_of(window: Window) -> tuple[Window, Window]:
    """Return the earlier and the later days of a window that has more than one."""
    middle = date.fromordinal((window.first.toordinal() + window.last.toordinal() + 1) // 2)
    return Window(window.first, middle - timedelta(days=1)), Window(middle, window.last)
