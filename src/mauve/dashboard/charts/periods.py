"""The stretch of days that a page shows, as its address says."""

from dataclasses import dataclass
from datetime import date
from typing import Final

from mauve.core.problems import Code, Problem
from mauve.core.window import Window
from mauve.dashboard.request import Fields

LENGTHS: Final = ("7", "30", "90")
DAYS_MAX: Final = 731
_DEFAULT: Final = "30"
_EARLIEST: Final = date(1975, 1, 1)  # The period before it must be on the calendar of every store.


@dataclass(frozen=True, slots=True)
class Period:
    window: Window
    length: str | None  # one of LENGTHS; None: somebody chose the days

    @property
    def before(self) -> Window:
        return self.window.before

    @property
    def address(self) -> dict[str, str]:
        """Return what an address says to mean this period."""
        if self.length is not None:
            return {"days": self.length}
        return {"from": self.window.first.isoformat(), "to": self.window.last.isoformat()}


def period_from(query: Fields, today: date) -> Period:
    """Return the period that an address asks for: so many days up to today, or from one day to another."""
    first, last = _only(query, "from"), _only(query, "to")
    if first or last:
        return Period(_chosen_window(first, last, today), None)
    length = _only(query, "days") or _DEFAULT
    if length not in LENGTHS:
        raise _refused(f"days must be one of {', '.join(LENGTHS)}")
    return Period(_days_up_to(today, int(length)), length)


def _chosen_window(first: str, last: str, today: date) -> Window:
    window = Window(_date_from(first, "from"), _date_from(last, "to"))
    if window.first > window.last:
        raise _refused("The first day comes after the last: choose them in order.")
    if window.first < _EARLIEST or window.last > today:
        raise _refused(f"Choose days from {_EARLIEST} up to today, {today}.")
    if window.length > DAYS_MAX:
        raise _refused(f"Choose at most {DAYS_MAX} days.")
    return window


def _days_up_to(today: date, length: int) -> Window:
    return Window(date.fromordinal(today.toordinal() - length + 1), today)


def _date_from(text: str, name: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _refused(f"{name} must be a day as YYYY-MM-DD") from None


def _only(query: Fields, name: str) -> str:
    return query.get(name, ("",))[0]


def _refused(message: str) -> Problem:
    return Problem(Code.MALFORMED, message)
