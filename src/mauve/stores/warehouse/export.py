"""Read a project's events for an export: day by day, in pages by `seq`."""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from mauve.stores.export import Chosen, EventDay, EventExtent, EventPage
from mauve.stores.imports import IMPORT_STREAM, ROWS_MAX, SOURCE_PREFIX, seq_of
from mauve.stores.warehouse import STREAM_SHIFT, Connection
from mauve.stores.warehouse.schema import day_from, day_number

PAGE_ROWS_MAX: Final = 50_000
PAGE_BYTES: Final = 8 * 1024 * 1024  # of texts; one more row may exceed it

# One thread, so that other reads keep a core. Finding a person scans every row of the project.
_LIMITS: Final = "SETTINGS max_threads = 1, max_memory_usage = 134217728, max_execution_time = {seconds}"
_PAGE_LIMITS: Final = _LIMITS.format(seconds=120)
_SCAN_LIMITS: Final = _LIMITS.format(seconds=1800)
_NUMBERS: Final = "output_format_json_quote_64bit_integers = 0"
_OF_PROJECT: Final = "project = {project:String} AND day BETWEEN toDate({first:UInt16}) AND toDate({last:UInt16})"
_OF_USER: Final = " AND user = {user:String}"
_STREAM: Final = f"bitShiftRight(seq, {STREAM_SHIFT})"
_IN_EXTENT: Final = f" AND seq <= transform({_STREAM}, {{streams:Array(UInt64)}}, {{ends:Array(UInt64)}}, toUInt64(0))"
_AFTER: Final = " AND seq > {after:UInt64}"
_BYTES: Final = "length(name) + length(user) + length(id) + length(props) + length(claimed_at)"
_IMPORT: Final = f"concat('{SOURCE_PREFIX}', toString(intDiv(seq - {seq_of(0, 0)}, {ROWS_MAX})))"
# In the order of `EventPage.arrow`, without aliases: they would hide the columns from the conditions.
_COLUMNS: Final = f"""
    toString(name), nullIf(user, ''), nullIf(id, ''), occurred_at, nullIf(props, ''),
    if({_STREAM} = {IMPORT_STREAM}, {_IMPORT}, NULL), received_at, nullIf(claimed_at, ''), counted, seq
"""


class ClickHouseEventExport:
    """Used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def extent(self, chosen: Chosen) -> EventExtent:
        condition, bound = _condition(chosen)
        last_seqs = f"SELECT {_STREAM} AS stream, max(seq) FROM events WHERE {condition} GROUP BY stream"
        ends = {stream: seq for stream, seq in self._read(last_seqs, bound, _SCAN_LIMITS)}  # noqa: C416 - mypy needs the pairs
        counts = f"""
        SELECT toUInt16(day) AS number, count() FROM events WHERE {condition}{_IN_EXTENT}
        GROUP BY number ORDER BY number
        """
        days = self._read(counts, bound | _bound_ends(ends), _SCAN_LIMITS)
        return EventExtent(ends, [EventDay(day_from(number), count) for number, count in days])

    def page(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
        condition, bound = _condition(chosen, day)
        condition, bound = condition + _IN_EXTENT + _AFTER, bound | _bound_ends(ends) | {"after": after}
        rows, last, is_last = self._measure(condition, bound)
        if not rows:
            return EventPage(0, after, is_last=True, arrow=b"")
        sql = f"SELECT {_COLUMNS} FROM events WHERE {condition} AND seq <= {last} ORDER BY seq"
        settings = "output_format_arrow_string_as_string = 1"
        return EventPage(rows, last, is_last, self._connection.arrow(f"{sql} {_PAGE_LIMITS}, {settings}", bound))

    def close(self) -> None:
        self._connection.close()

    def _measure(self, condition: str, bound: Mapping[str, str | int]) -> tuple[int, int, bool]:
        """Return the number of rows that fit into a page, the last of them, and whether they complete the day.

        The first step reads only `seq`, so that the texts of a large day are read once, not once per page.
        """
        first_rows = f"SELECT seq FROM events WHERE {condition} ORDER BY seq LIMIT {PAGE_ROWS_MAX}"
        ((found, last),) = self._read(f"SELECT count(), max(seq) FROM ({first_rows})", bound, _PAGE_LIMITS)
        if not found:
            return 0, 0, True
        sizes = f"SELECT seq, {_BYTES} AS size FROM events WHERE {condition} AND seq <= {last}"
        fitting = f"""
        SELECT count(), max(seq)
        FROM (SELECT seq, size, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total FROM ({sizes}))
        WHERE total - size < {PAGE_BYTES}
        """
        ((rows, last_fitting),) = self._read(fitting, bound, _PAGE_LIMITS)
        return rows, last_fitting, found < PAGE_ROWS_MAX and last_fitting == last

    def _read(self, sql: str, bound: Mapping[str, str | int], limits: str) -> list[list[Any]]:
        return self._connection.read(f"{sql} {limits}, {_NUMBERS}", bound)


def _condition(chosen: Chosen, day: date | None = None) -> tuple[str, dict[str, str | int]]:
    bound: dict[str, str | int] = {
        "project": chosen.project,
        "first": day_number(day or chosen.first),
        "last": day_number(day or chosen.last),
    }
    if chosen.user is None:
        return _OF_PROJECT, bound
    return _OF_PROJECT + _OF_USER, bound | {"user": chosen.user}


def _bound_ends(ends: Mapping[int, int]) -> dict[str, str | int]:
    if not ends:
        ends = {0: 0}  # The engine does not accept empty lists here.
    return {"streams": str(list(ends)), "ends": str(list(ends.values()))}
