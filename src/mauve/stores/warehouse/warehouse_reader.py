"""Read the warehouse: distinct users from sketches, events from daily sums."""

import math
import queue
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import date
from typing import Any, Final, Protocol

from mauve.core.events import Activity
from mauve.core.times import DAY_MS, PAST_MAX_MS
from mauve.core.window import Window, halves_of
from mauve.stores.cancellation import seconds_left
from mauve.stores.warehouse import StoredEvent, WarehouseUnavailableError

_READ_S_MAX: Final = 10.0  # for a read without a deadline
_LEAST_S: Final = 0.001  # The engine treats 0 as no limit.
_READ_BYTES_MAX: Final = 128 * 1024 * 1024
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAY_NUMBER_MAX: Final = 2**16 - 1

_LIMITS: Final = f"""
SETTINGS max_memory_usage = {_READ_BYTES_MAX},
    output_format_json_quote_64bit_integers = 0
"""
# The primary key finds exactly the rows needed, so filtering columns first does not help.
_BY_PRIMARY_KEY: Final = f"{_LIMITS}, optimize_move_to_prewhere = 0"
_IN_DAYS: Final = "day BETWEEN toDate({first:UInt16}) AND toDate({last:UInt16})"
_IN_WINDOW: Final = "project = {project:String} AND day BETWEEN toDate({first:UInt16}) AND toDate({last:UInt16})"
_USERS: Final = "uniqCombined64Merge(17)(users)"
_IN_WEEKS: Final = "day BETWEEN toDate({first_of_weeks:UInt16}) AND toDate({last_of_weeks:UInt16})"
# Written as a sum over whole days so that the engine uses the projection with daily sums of each name.
_COUNT: Final = "sum(counted)"
# Clients choose the names and thus their number. Sums that do not fit in memory go to disk, and all but the most
# frequent are dropped early: a million names take no more memory than ten thousand.
_MANY_NAMES: Final = """
    max_block_size = 8192, max_bytes_before_external_group_by = 33554432, max_bytes_before_remerge_sort = 16777216
"""
_EVENT_NAMES: Final = f"""
SELECT name, {_COUNT} AS count FROM events WHERE {_IN_WINDOW}
GROUP BY name HAVING count > 0 ORDER BY count DESC, name LIMIT {{names_max:UInt32}}
{_LIMITS}, {_MANY_NAMES}
"""
_EVENT_COUNT: Final = f"SELECT {_COUNT} FROM events WHERE {_IN_WINDOW} AND name = {{name:String}} {_LIMITS}"
_EVENT_DAYS: Final = f"""
SELECT toString(day), {_COUNT} AS count FROM events WHERE {_IN_WINDOW} AND name = {{name:String}}
GROUP BY day HAVING count > 0 ORDER BY day {_LIMITS}
"""
_PROPS_CHARACTERS_MAX: Final = 200
_LATEST_EVENTS: Final = f"""
SELECT name, received_at, occurred_at, user, id, substringUTF8(props, 1, {_PROPS_CHARACTERS_MAX}), counted
FROM events WHERE {_IN_WINDOW} AND received_at >= {{since:Int64}} AND received_at < {{until:Int64}}
ORDER BY received_at DESC, seq DESC LIMIT {{events_max:UInt32}} {_LIMITS}
"""
_SCANNED_ROWS_MAX: Final = 500_000  # for the latest events
_NARROWER: Final = 8
_NARROWEST_MS: Final = 1_000


class ReadConnection(Protocol):
    """The part of a connection that a read needs. Used by one thread at a time."""

    def read(self, sql: str, parameters: Mapping[str, str | int]) -> list[list[Any]]: ...

    def close(self) -> None: ...


class ClickHouseWarehouseReader:
    """Reads in parallel, on one connection per concurrent reader, opened when first needed."""

    def __init__(self, open_connection: Callable[[], ReadConnection]) -> None:
        self._open_connection = open_connection
        self._idle: queue.SimpleQueue[ReadConnection] = queue.SimpleQueue()
        self._second = ThreadPoolExecutor(2, thread_name_prefix="half-a-window")

    def users(
        self, projects: Collection[str], seen: Collection[Activity], window: Window, weeks: Window | None
    ) -> dict[str, int]:
        kinds = ", ".join(f"'{each}'" for each in sorted(seen))
        found = f"kind IN ({kinds}) AND {_IN_DAYS}"
        more: dict[str, str | int] = {}
        if weeks is not None:
            week_kinds = ", ".join(f"'{each}_week'" for each in sorted(seen))
            found = f"(({found} AND NOT {_IN_WEEKS}) OR (kind IN ({week_kinds}) AND {_IN_WEEKS}))"
            more = {"first_of_weeks": day_number(weeks.first), "last_of_weeks": day_number(weeks.last)}
        these, names = _any_of(projects)
        sql = f"SELECT project, {_USERS} FROM actives WHERE {these} AND {found} GROUP BY project {_BY_PRIMARY_KEY}"
        return dict(self._rows(sql, window, more | names))

    def users_by_day(self, projects: Collection[str], seen: Activity, window: Window) -> list[tuple[str, str, int]]:
        these, names = _any_of(projects)
        sql = f"""
        SELECT project, toString(day), {_USERS} FROM actives WHERE {these} AND kind = '{seen}' AND {_IN_DAYS}
        GROUP BY project, day {_BY_PRIMARY_KEY}
        """
        if window.length <= 1:
            return sorted(map(tuple, self._rows(sql, window, names)))
        # The engine counts the sketches of one query sequentially; two queries use two cores.
        earlier, later = halves_of(window)
        ahead = self._second.submit(copy_context().run, self._rows, sql, earlier, names)
        try:
            second = self._rows(sql, later, names)
        finally:
            has_not_begun = ahead.cancel()
        # Other reads may occupy the pool's threads for long: use this thread instead of waiting.
        first = self._rows(sql, earlier, names) if has_not_begun else ahead.result()
        return sorted(map(tuple, [*first, *second]))

    def event_names(self, project: str, window: Window, names_max: int) -> list[tuple[str, int]]:
        return self._pairs(_EVENT_NAMES, project, window, names_max=names_max)

    def event_count(self, project: str, name: str, window: Window) -> int:
        return self._number(_EVENT_COUNT, project, window, name=name)

    def event_days(self, project: str, name: str, window: Window) -> list[tuple[str, int]]:
        return self._pairs(_EVENT_DAYS, project, window, name=name)

    def latest_events(self, project: str, window: Window, events_max: int) -> list[StoredEvent]:
        """Go back from now, in ranges with a limited number of rows, until there are enough events."""
        since, until = day_number(window.first) * DAY_MS, (day_number(window.last) + 1) * DAY_MS
        occurred = _days_of_occurrence(window)
        found: list[StoredEvent] = []
        while since < until and len(found) < events_max:
            first = self._range_start(project, occurred, since, until)
            bound = {"since": first, "until": until, "events_max": events_max - len(found)}
            rows = self._rows(_LATEST_EVENTS, occurred, {"project": project, **bound})
            found += [StoredEvent(*row) for row in rows]
            until = first
        return found

    def close(self) -> None:
        """Close the idle connections, once there are no more reads."""
        self._second.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

    def _range_start(self, project: str, window: Window, since: int, until: int) -> int:
        """Return how far back to read within the limit on scanned rows, as estimated by the index."""
        width, costs = until - since, {}
        while True:
            bound = {"since": until - width, "until": until, "events_max": 1}
            estimate = self._rows(f"EXPLAIN ESTIMATE {_LATEST_EVENTS}", window, {"project": project, **bound})
            costs[width] = sum(rows for _, _, _, rows, _ in estimate)
            if costs[width] <= _SCANNED_ROWS_MAX:
                return until - width
            if width <= _NARROWEST_MS:
                break
            width = max(_NARROWEST_MS, width // _NARROWER)
        # Even one second is expensive: parts without the index, or very many names. Read as much as costs the same.
        return until - max(wide for wide, cost in costs.items() if cost <= 2 * costs[width])

    def _number(self, sql: str, project: str, window: Window, **more: str | int) -> int:
        rows = self._rows(sql, window, {"project": project, **more})
        return int(rows[0][0]) if rows else 0

    def _pairs(self, sql: str, project: str, window: Window, **more: str | int) -> list[tuple[str, int]]:
        rows = self._rows(sql, window, {"project": project, **more})
        return [(text, number) for text, number in rows]

    def _rows(self, sql: str, window: Window, bound: Mapping[str, str | int]) -> list[list[Any]]:
        if _is_outside(window):
            return []
        days = {"first": day_number(window.first), "last": day_number(window.last)}
        left_s = seconds_left()
        if left_s < _LEAST_S:
            raise WarehouseUnavailableError("the deadline of this read has passed")
        with self._connection() as connection:
            limit = f"max_execution_time = {_READ_S_MAX if left_s == math.inf else left_s:.3f}"
            return connection.read(f"{sql}, {limit}", {**days, **bound})

    @contextmanager
    def _connection(self) -> Iterator[ReadConnection]:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._open_connection()
        try:
            yield connection
        finally:
            self._idle.put(connection)


def _any_of(projects: Collection[str]) -> tuple[str, dict[str, str | int]]:
    """Return a condition on the project, and its parameters."""
    names = {f"project_{place}": project for place, project in enumerate(projects)}
    return f"project IN ({', '.join(f'{{{name}:String}}' for name in names)})", dict(names)


def _is_outside(window: Window) -> bool:
    """Return whether the window is outside the engine's range of days, 1970 to 2149."""
    return window.last.toordinal() < _EPOCH_ORDINAL or window.first.toordinal() - _EPOCH_ORDINAL > _DAY_NUMBER_MAX


def _days_of_occurrence(received: Window) -> Window:
    """Return the days on which events received in the window may have occurred."""
    first = max(date.min.toordinal(), received.first.toordinal() - PAST_MAX_MS // DAY_MS)
    last = min(date.max.toordinal(), received.last.toordinal() + 1)  # Clients' clocks may be fast.
    return Window(date.fromordinal(first), date.fromordinal(last))


def day_number(day: date) -> int:
    """Return the engine's number for a day, or for the nearest supported day."""
    return min(max(0, day.toordinal() - _EPOCH_ORDINAL), _DAY_NUMBER_MAX)
