"""Closing days: what a day came to is summed up once, when no event can come to it any more."""

from datetime import date, timedelta
from typing import Final

import structlog

from mauve.core.window import DAY, Window, sunday_of
from mauve.stores.closed_days import ClosedDays
from mauve.stores.warehouse import WarehouseSummary

# Events are dated at most seven days back. One day more, since what came just before midnight is loaded after it.
_OPEN: Final = timedelta(days=9)

log = structlog.get_logger()


class DayCloser:
    """Used by one thread, the loader's."""

    def __init__(self, closed: ClosedDays, warehouse: WarehouseSummary) -> None:
        self._closed = closed
        self._warehouse = warehouse

    def reopen_from(self, first: date) -> None:
        """Open the days from this one on, before rows are loaded into them.

        It happens when a clock was wrong for days, or when somebody makes history up.
        """
        through = self._closed.through()
        if through is not None and first <= through:
            log.warning("days_reopened", first=str(first), closed_through=str(through))
            self._closed.reopen(first)

    def close_next_days(self, today: date) -> bool:
        """Close the open days of one week, if their time has come. Everything that was accepted must be loaded."""
        limit = today - _OPEN
        first = self._first_open(limit)
        last = min(sunday_of(first), limit)
        if last < first:
            return False
        if last == sunday_of(last):
            self._warehouse.merge_week(Window(last - 6 * DAY, last))
        self._closed.close(last, self._warehouse.users_of_days(Window(first, last)))
        return True

    def _first_open(self, limit: date) -> date:
        through = self._closed.through()
        if through is not None:
            return through + DAY
        first = self._warehouse.first_day()
        return limit if first is None else first
