"""Reading: distinct users from their sketches, events from their sums."""

import queue
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, Protocol

from mauve.core.people import Seen
from mauve.core.window import Window, halves_of
from mauve.stores.warehouse import StoredEvent

READ_S_MAX: Final = 10
_READ_BYTES_MAX: Final = 256 * 1024 * 1024
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAY_NUMBER_MAX: Final = 2**16 - 1

_LIMITS: Final = f"""
SETTINGS max_execution_time = {READ_S_MAX}, max_memory_usage = {_READ_BYTES_MAX},
    output_format_json_quote_64bit_integers = 0
"""
_IN_WINDOW: Final = "project = {project:String} AND day BETWEEN toDate({first:UInt16}) AND toDate({last:UInt16})"
_USERS: Final = "uniqCombined64Merge(17)(users)"
# Written as a sum over whole days: so it is read from the projection, which has the days of each name summed up.
_COUNT: Final = "sum(counted)"
_EVENT_NAMES: Final = f"""
SELECT name, {_COUNT} AS count FROM mauve.events WHERE {_IN_WINDOW}
GROUP BY name HAVING count > 0 ORDER BY count DESC, name LIMIT {{names_max:UInt32}} {_LIMITS}
"""
_EVENT_COUNT: Final = f"SELECT {_COUNT} FROM mauve.events WHERE {_IN_WINDOW} AND name = {{name:String}} {_LIMITS}"
_EVENT_DAYS: Final = f"""
SELECT toString(day), {_COUNT} AS count FROM mauve.events WHERE {_IN_WINDOW} AND name = {{name:String}}
GROUP BY day HAVING count > 0 ORDER BY day {_LIMITS}
"""
_PROPS_CHARACTERS_MAX: Final = 200
_LATEST_EVENTS: Final = f"""
SELECT name, received_at, occurred_at, user, id, substringUTF8(props, 1, {_PROPS_CHARACTERS_MAX}), counted
FROM mauve.events WHERE {_IN_WINDOW}
ORDER BY received_at DESC, seq DESC LIMIT {{events_max:UInt32}} {_LIMITS}
"""


class ReadConnection(Protocol):
    """What a read needs of a connection. One thread at a time uses it."""

    def read(self, sql: str, parameters: Mapping[str, str | int]) -> list[list[Any]]: ...

    def close(self) -> None: ...


class ChdbWarehouseReader:
    """Reads side by side, on as many connections as there are readers at once. They are opened when first needed."""

    def __init__(self, open_connection: Callable[[], ReadConnection]) -> None:
        self._open_connection = open_connection
        self._idle: queue.SimpleQueue[ReadConnection] = queue.SimpleQueue()
        self._second = ThreadPoolExecutor(2, thread_name_prefix="half-a-window")

    def users(self, project: str, seen: Collection[Seen], window: Window) -> int:
        kinds = ", ".join(f"'{each}'" for each in sorted(seen))
        sql = f"SELECT {_USERS} FROM mauve.actives WHERE {_IN_WINDOW} AND kind IN ({kinds}) {_LIMITS}"
        return self._number(sql, project, window)

    def users_by_day(self, project: str, seen: Seen, window: Window) -> list[tuple[str, int]]:
        sql = f"""
        SELECT toString(day), {_USERS} FROM mauve.actives WHERE {_IN_WINDOW} AND kind = '{seen}'
        GROUP BY day ORDER BY day {_LIMITS}
        """
        if window.first == window.last:
            return self._pairs(sql, project, window)
        # The engine counts the sketches of a query one after the other; two queries count on two cores.
        earlier, later = halves_of(window)
        ahead = self._second.submit(self._pairs, sql, project, earlier)
        second = self._pairs(sql, project, later)
        return [*ahead.result(), *second]

    def event_names(self, project: str, window: Window, names_max: int) -> list[tuple[str, int]]:
        return self._pairs(_EVENT_NAMES, project, window, names_max=names_max)

    def event_count(self, project: str, name: str, window: Window) -> int:
        return self._number(_EVENT_COUNT, project, window, name=name)

    def event_days(self, project: str, name: str, window: Window) -> list[tuple[str, int]]:
        return self._pairs(_EVENT_DAYS, project, window, name=name)

    def latest_events(self, project: str, window: Window, events_max: int) -> list[StoredEvent]:
        rows = self._rows(_LATEST_EVENTS, project, window, {"events_max": events_max})
        return [StoredEvent(*row) for row in rows]

    def close(self) -> None:
        """Close what is idle; nobody reads any more."""
        self._second.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

    def _number(self, sql: str, project: str, window: Window, **more: str | int) -> int:
        rows = self._rows(sql, project, window, more)
        return int(rows[0][0]) if rows else 0

    def _pairs(self, sql: str, project: str, window: Window, **more: str | int) -> list[tuple[str, int]]:
        return [(text, number) for text, number in self._rows(sql, project, window, more)]

    def _rows(self, sql: str, project: str, window: Window, more: Mapping[str, str | int]) -> list[list[Any]]:
        first = max(0, window.first.toordinal() - _EPOCH_ORDINAL)
        last = min(_DAY_NUMBER_MAX, window.last.toordinal() - _EPOCH_ORDINAL)
        if first > last:  # No event can be there: the engine's days run from 1970 to 2149.
            return []
        with self._connection() as connection:
            return connection.read(sql, {"project": project, "first": first, "last": last, **more})

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
