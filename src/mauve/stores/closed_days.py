"""Closed days: those to which no event can come any more, and how many users each of them had.

An event is dated at most seven days before it is received. What a day came to before that is a number which never
changes: it is made once, instead of from a sketch each time that somebody asks.
"""

from collections.abc import Collection, Iterable
from datetime import date
from typing import NamedTuple, Protocol

from mauve.core.events import Activity
from mauve.core.window import Window


class DayUsers(NamedTuple):
    """How many different users a project had on a day, seen in one way."""

    project: str
    seen: Activity
    day: str  # YYYY-MM-DD
    users: int


class ClosedDays(Protocol):
    """Where the loader closes days. All up to one day are closed, and none behind it.

    - `close` and `reopen` are durable when they return, and happen at once or not at all.
    - A day is reopened before anything is loaded into it, so that no number outlives the day that it tells of.
    """

    def through(self) -> date | None:
        """Return the last closed day; None if none ever was."""
        ...

    def close(self, through: date, users: Iterable[DayUsers]) -> None:
        """Close all days up to this one, with the users of those that were open."""
        ...

    def reopen(self, first: date) -> None:
        """Open this day and all behind it, if they were closed."""
        ...


class ClosedDaysReader(Protocol):
    def through(self) -> date | None: ...

    def users(
        self, projects: Collection[str], seen: Activity, window: Window
    ) -> tuple[date | None, list[tuple[str, str, int]]]:
        """Return the last closed day, and (project, day, users) of the closed days in the window: by project, then day.

        Both are of one moment. Days without users are left out.
        """
        ...
