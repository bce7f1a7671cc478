"""The period that a page shows, read from the query of its URL."""

from dataclasses import dataclass
from datetime import date
from typing import Final

from mauve.core.problems import Problem
from mauve.core.text import counted
from mauve.core.window import Window
from mauve.dashboard.context import Fields, ParameterProblem
from mauve.metrics.summaries import compared_days

LENGTHS: Final = ("7", "30", "90")
DAYS_MAX: Final = 731
_DEFAULT: Final = "30"
_MONTH_LENGTHS: Final = range(28, 32)
_EARLIEST: Final = date(1975, 1, 1)  # The previous period must be a valid date range in every store.


@dataclass(frozen=True, slots=True)
class Period:
    window: Window
    length: str | None  # one of LENGTHS; None for a custom range
    today: date

    @property
    def before(self) -> Window:
        return self.window.before

    @property
    def has_today(self) -> bool:
        """Return whether the last day is unfinished."""
        return self.window.last == self.today

    @property
    def whole(self) -> Window | None:
        """Return the days to compare: all but today. None if there are none."""
        compared = compared_days(self.window, self.today)
        return None if compared is None else compared[0]

    @property
    def whole_before(self) -> Window | None:
        """Return the same days of the previous period."""
        compared = compared_days(self.window, self.today)
        return None if compared is None else compared[1]

    @property
    def users_title(self) -> str:
        """Return the title of the user count: monthly only if the period is about a month long."""
        return "MAU" if self.window.length in _MONTH_LENGTHS else "Active users"

    @property
    def before_title(self) -> str:
        """Return the name of the previous period: `the previous day`, `the previous 7 days`."""
        length = self.window.length
        return "the previous day" if length == 1 else f"the previous {counted(length, 'day')}"

    @property
    def address(self) -> dict[str, str]:
        """Return the query parameters that select this period."""
        if self.length is not None:
            return {"days": self.length}
        return {"from": self.window.first.isoformat(), "to": self.window.last.isoformat()}


def period_from(query: Fields, today: date) -> Period:
    """Return the requested period: a number of days up to today, or a custom range."""
    first, last = _parameter(query, "from"), _parameter(query, "to")
    if first or last:
        return Period(_custom_window(first, last, today), None, today)
    length = _parameter(query, "days") or _DEFAULT
    if length not in LENGTHS:
        raise _malformed(f"Choose {', '.join(LENGTHS[:-1])} or {LENGTHS[-1]} days, or a first and a last day.")
    return Period(_days_up_to(today, int(length)), length, today)


def _custom_window(first: str, last: str, today: date) -> Window:
    if not (first and last):
        raise _malformed("Choose both a first and a last day.")
    window = Window(_date_from(first), _date_from(last))
    if window.first > window.last:
        raise _malformed("The first day is after the last day: swap them.")
    if window.first < _EARLIEST or window.last > today:
        raise _malformed(f"Choose days between {_EARLIEST} and today, {today}.")
    if window.length > DAYS_MAX:
        raise _malformed(f"Choose at most {DAYS_MAX} days.")
    return window


def _days_up_to(today: date, length: int) -> Window:
    return Window(date.fromordinal(today.toordinal() - length + 1), today)


def _date_from(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _malformed("A day is a date in the form YYYY-MM-DD: correct it.") from None


def _parameter(query: Fields, name: str) -> str:
    return query.get(name, ("",))[0]


def _malformed(message: str) -> Problem:
    return ParameterProblem(message, "days", "from", "to")
