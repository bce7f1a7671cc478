"""Closed days: days that can receive no more events, with their number of users.

An event is dated at most seven days before it is received, so the count of an older day never changes. It is computed
once, instead of from a sketch at every read.
"""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple, Protocol

from mauve.core.events import Activity


class DayUsers(NamedTuple):
    """How many distinct users a project had on a day, by one kind of activity."""

    project: str
    seen: Activity
    day: str  # YYYY-MM-DD
    users: int


class ClosedDays(Protocol):
    """Where the loader closes days: all up to one day are closed, and none after it.

    - `close` and `reopen` are atomic, and durable when they return.
    - A day is reopened before anything is loaded into it, so that no outdated count is read.
    - `close` changes nothing if another process has reopened days since `through` was last asked here: the counts were
      computed before, and may lack what that process has loaded.
    """

    def through(self) -> date | None:
        """Return the last closed day, or None."""
        ...

    def close(self, through: date, users: Iterable[DayUsers]) -> None:
        """Close all days up to and including this one, with the users of those that were open."""
        ...

    def reopen(self, first: date) -> None:
        """Reopen this day and all later ones, if they were closed."""
        ...
