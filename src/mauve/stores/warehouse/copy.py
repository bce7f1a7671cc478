"""Copy a warehouse into another, day by day. A later run resumes an interrupted one and skips complete days.

Rows are copied in blocks of the engine's own format, so memory use stays small and sketches are unchanged.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from mauve.stores.warehouse import Connection
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.server.server import ServerConnection

_INSERT_BYTES: Final = 16 * 1024 * 1024
_SEVEN_BITS: Final = 0x7F
_CONTINUES: Final = 0x80


class _Table(NamedTuple):
    name: str
    counts: str  # day and number of rows, for the days that are copied
    rows: str  # of one day
    clear: str | None  # remove the rows of one day; None if inserting them twice is harmless


_EVENT_COLUMNS: Final = "project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted"
_DAY: Final = "toDate(toUInt16({day}))"
_TABLES: Final = (
    _Table(
        "events",
        "SELECT toUInt16(day) AS number, count() FROM events GROUP BY number ORDER BY number",
        f"SELECT {_EVENT_COLUMNS} FROM events WHERE day = {_DAY}",
        f"ALTER TABLE events DELETE WHERE day = {_DAY} SETTINGS mutations_sync = 2",
    ),
    # Merge first: the number of rows of a sketch depends on background merges.
    _Table(
        "actives",
        "SELECT toUInt16(day) AS number, uniqExact(project, kind) FROM actives GROUP BY number ORDER BY number",
        "SELECT project, kind, day, uniqCombined64MergeState(17)(users) AS users FROM actives"
        f" WHERE day = {_DAY} GROUP BY project, kind, day",
        None,
    ),
    # Older days are about to be dropped, at different times on each side.
    _Table(
        "seen",
        "SELECT toUInt16(received_day) AS number, count() FROM seen WHERE received_day >= today() - 8"
        " GROUP BY number ORDER BY number",
        f"SELECT id_hash, received_at, received_day FROM seen WHERE received_day = {_DAY}",
        f"ALTER TABLE seen DELETE WHERE received_day = {_DAY} SETTINGS mutations_sync = 2",
    ),
)


def count_warehouse(engine: Connection) -> dict[str, int]:
    """Return the number of rows by table; for sketches, the number of distinct ones."""
    return {table.name: sum(_counts(engine, table).values()) for table in _TABLES}


def copy_warehouse(source: ChdbConnection, target: ServerConnection, on_rows: Callable[[str, int], None]) -> None:
    """Copy every incomplete day. The source must not change; the target must hold nothing else."""
    for table in _TABLES:
        present = _counts(target, table)
        for day, count in _counts(source, table).items():
            if present.get(day) == count:
                on_rows(table.name, count)
                continue
            if day in present and table.clear is not None:
                target.run(table.clear.format(day=day))
            _copy_day(source, target, table, day, on_rows)


def _counts(engine: Connection, table: _Table) -> dict[int, int]:
    return {day: count for day, count in engine.rows(table.counts)}  # noqa: C416 - mypy needs the pairs


def _copy_day(
    source: ChdbConnection, target: ServerConnection, table: _Table, day: int, on_rows: Callable[[str, int], None]
) -> None:
    waiting: list[bytes] = []
    size = 0
    for block in source.native_blocks(table.rows.format(day=day)):
        waiting.append(block)
        size += len(block)
        if size >= _INSERT_BYTES:
            _insert(target, table.name, waiting, on_rows)
            waiting, size = [], 0
    if waiting:
        _insert(target, table.name, waiting, on_rows)


def _insert(target: ServerConnection, table: str, blocks: list[bytes], on_rows: Callable[[str, int], None]) -> None:
    target.insert_native(table, b"".join(blocks))
    on_rows(table, sum(map(rows_in, blocks)))


def rows_in(block: bytes) -> int:
    """Return the number of rows of a block, which begins with its column and row counts as varints."""
    numbers, value, shift = [], 0, 0
    for byte in block[:20]:
        value |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if not byte & _CONTINUES:
            numbers.append(value)
            value, shift = 0, 0
    return numbers[1] if len(numbers) > 1 else 0
