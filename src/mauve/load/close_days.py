"""Closing days: count a day's users once, when no more events can be dated to it."""

from datetime import date, timedelta
from typing import Final

import structlog

from mauve.core.window import DAY, Window, sunday_of
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse

# Events are dated at most seven days back, plus a day because events received just before midnight load after it.
_OPEN: Final = timedelta(days=9)

log = structlog.get_logger()


class DayCloser:
    """Used by the loader's thread only."""

    def __init__(self, closed: ClosedDays, warehouse: ClickHouseWarehouse) -> None:
        self._closed = closed
        self._warehouse = warehouse

    def reopen_from(self, first: date) -> None:
        """Reopen this day and all later ones before rows are loaded into them.

        Needed when a clock was wrong for days, or when history is generated.
        """
        through = self._closed.through()
        if through is not None and first <= through:
            log.warning("days_reopened", first=str(first), closed_through=str(through))
            self._closed.reopen(first)

    def close_next_days(self, today: date) -> bool:
        """Close the days of one week that are due; return whether any were. Load all accepted events first."""
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
