"""A stretch of days, UTC, both ends included."""

from datetime import UTC, date, datetime
from typing import NamedTuple


class Window(NamedTuple):
    first: date
    last: date


def today_at(now_ms: int) -> date:
    """Return the UTC day of a moment."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).date()
