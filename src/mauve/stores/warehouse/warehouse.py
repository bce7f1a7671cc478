"""Load events: stage them in memory, then store them in three tables."""

from collections.abc import Collection, Mapping
from datetime import date
from typing import Final

import numpy as np
import structlog

from mauve.core.events import Activity
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.ledger.closed_days import DayUsers
from mauve.stores.warehouse import EventRows, RowsRefusedError, SameId, WarehouseUnavailableError, first_seq
from mauve.stores.warehouse.chdb.connection import Connection
from mauve.stores.warehouse.columns import events_as_arrow, seen_as_arrow, seqs_as_arrow
from mauve.stores.warehouse.event_days import repair_event_days
from mauve.stores.warehouse.schema import STAGING, TABLES
from mauve.stores.warehouse.seen_ids import FILTER_BYTES_MAX, SeenIds
from mauve.stores.warehouse.staged_ids import NO_IDS, received_ids, same_ids, staged_ids

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
STORED_AFTER_MAX: Final = 5_000_000  # several times the largest range
_ID_HASH: Final = "sipHash128(project, '/', id)"
_STAGED_TABLES: Final = ("staged", "staged_repeats", "staged_stored")
_HASHED_IDS: Final = f"SELECT seq, {_ID_HASH} FROM staged WHERE id != ''"
# The staged tables are in memory: their loss must be detected.
_IS_COMPLETE: Final = " AND ".join(
    f"(SELECT throwIf(count() != {{{name}}}, 'the staged rows are lost') FROM {table}) = 0"
    for name, table in (
        ("staged", "staged"),
        ("repeats", "staged_repeats"),
        ("stored", "staged_stored"),
    )
)
COUNTS: Final = "seq NOT IN (SELECT seq FROM staged_repeats)"
# A day is the number of days since 1970, independent of the machine's time zone.
DAY: Final = f"toDate(toUInt16(intDiv(occurred_at, {DAY_MS})))"
_IS_NEW: Final = "seq NOT IN (SELECT seq FROM staged_stored)"
_RECEIVED_DAY: Final = f"toUInt16(intDiv(received_at, {DAY_MS}))"
COMMIT: Final = {
    "events": f"""
    INSERT INTO events
        (project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted)
    SELECT project, name, received_at, occurred_at, claimed_at, user, id, props, seq, {DAY}, {COUNTS}
    FROM staged
    WHERE {{is_complete}} AND {_IS_NEW}
    """,
    "seen": f"""
    INSERT INTO seen (id_hash, received_at, received_day)
    SELECT {_ID_HASH}, received_at, toDate({_RECEIVED_DAY}) FROM staged
    WHERE {{is_complete}} AND id != '' AND {COUNTS} AND {_IS_NEW}
    """,
    "actives": f"""
    INSERT INTO actives (project, kind, day, users)
    SELECT project, if(name = 'user_signup', 'signup', 'active') AS kind, {DAY} AS day,
        uniqCombined64State(17)(user)
    FROM staged
    WHERE {{is_complete}} AND user != '' AND {COUNTS}
    GROUP BY project, kind, day
    """,
}

# A project with a slash is one source of another project's users, see `stores.warehouse.imports`.
_USERS_OF_DAYS: Final = """
SELECT project, kind, toString(day), uniqCombined64Merge(17)(users) FROM actives
WHERE kind IN ('active', 'signup') AND day BETWEEN toDate({first:UInt16}) AND toDate({last:UInt16})
    AND position(project, '/') = 0
GROUP BY project, kind, day SETTINGS output_format_json_quote_64bit_integers = 0
"""
_HAS_WEEK: Final = "SELECT count() FROM actives WHERE {of_week}"
_DROP_WEEK: Final = "ALTER TABLE actives DELETE WHERE {of_week} SETTINGS mutations_sync = 2"
_OF_WEEK: Final = "kind IN ('active_week', 'signup_week') AND day = toDate(toUInt16({first}))"
_SUM_UP_WEEK: Final = """
INSERT INTO actives (project, kind, day, users)
SELECT project, concat(toString(kind), '_week') AS week_kind, toDate(toUInt16({first})),
    uniqCombined64MergeState(17)(users)
FROM actives
WHERE kind IN ('active', 'signup') AND day BETWEEN toDate(toUInt16({first})) AND toDate(toUInt16({last}))
    AND position(project, '/') = 0
GROUP BY project, week_kind
"""

log = structlog.get_logger()


class ClickHouseWarehouse:
    """The loader's side of a warehouse whose tables exist."""

    def __init__(self, connection: Connection, *, filter_bytes_max: int = FILTER_BYTES_MAX) -> None:
        self._connection = connection
        self._has_staging = False
        self._seen = SeenIds(connection, filter_bytes_max=filter_bytes_max)
        self._staged_count = 0
        self._staged_ids = NO_IDS

    def stage(self, rows: EventRows) -> list[SameId]:
        self._stage_rows(rows)
        self._staged_ids = staged_ids(rows, self._connection.binary(_HASHED_IDS)) if any(rows.id.lengths) else NO_IDS
        return same_ids(self._staged_ids, self._seen)

    def commit(self, repeats: Collection[int], stored: Collection[int], range_name: str = "") -> None:
        is_complete = self._judge_rows(repeats, stored)
        counted = self._staged_ids.without(repeats).without(stored)  # Stored ones are known, see `recover_ids`.
        self._seen.add(counted.hashes, counted.received_days)
        for table, statement in COMMIT.items():
            self._store(table, statement.format(is_complete=is_complete), range_name)
        self._has_staging = True

    def stored_after(self, positions: Mapping[int, int], received_from_ms: int = 0) -> dict[int, bool]:
        if not positions:
            return {}
        rows = self._connection.rows(
            f"SELECT seq, counted FROM events WHERE {_after(positions, received_from_ms)} LIMIT {STORED_AFTER_MAX + 1}"
        )
        if len(rows) > STORED_AFTER_MAX:
            raise WarehouseUnavailableError(
                f"the warehouse holds more than {STORED_AFTER_MAX} events that the ledger does not have: "
                "restore both from the same backup"
            )
        return {seq: counted == 1 for seq, counted in rows}

    def recover_ids(self, positions: Mapping[int, int], received_from_ms: int = 0) -> None:
        counted = f"{_after(positions, received_from_ms)} AND counted AND id != ''"
        rows = self._connection.binary(f"SELECT received_at, {_ID_HASH} FROM events WHERE {counted}")
        received_at, days, hashes = received_ids(rows)
        if not len(hashes):
            return
        counted_at = self._seen.counted_at(hashes, int(days.min()))
        # Otherwise, every attempt would add all of them again.
        missing = np.array([at not in counted_at.get(place, ()) for place, at in enumerate(received_at.tolist())])
        self._seen.add(hashes[missing], days[missing])
        self._connection.insert_arrow("seen", seen_as_arrow(hashes[missing], received_at[missing], days[missing]))

    def forget_ids(self) -> None:
        """See the protocol. No other loader can open an embedded warehouse."""

    def expire_ids(self, loaded_through_ms: int) -> None:
        try:
            self._seen.expire(loaded_through_ms)
        except (RowsRefusedError, WarehouseUnavailableError) as error:
            log.warning("ids_not_expired", reason=str(error), advice="retried at the next load")

    def first_day(self) -> date | None:
        ((number, count),) = self._connection.rows("SELECT toUInt16(min(day)), count() FROM actives")
        return date.fromordinal(_EPOCH_ORDINAL + number) if count else None

    def users_of_days(self, window: Window) -> list[DayUsers]:
        first, last = _day_numbers(window)
        rows = self._connection.read(_USERS_OF_DAYS, {"first": first, "last": last})
        return [DayUsers(project, Activity(kind), day, users) for project, kind, day, users in rows]

    def merge_week(self, week: Window) -> None:
        first, last = _day_numbers(week)
        of_week = _OF_WEEK.format(first=first)
        # Left from an earlier attempt, or from before the week was reopened: remove the users of an undone import.
        if self._connection.rows(_HAS_WEEK.format(of_week=of_week)) != [(0,)]:
            self._connection.run(_DROP_WEEK.format(of_week=of_week))
        self._connection.run(_SUM_UP_WEEK.format(first=first, last=last))

    def ping(self) -> None:
        self._connection.rows("SELECT 1")

    def _stage_rows(self, rows: EventRows) -> None:
        self._empty_staging()
        self._connection.insert_arrow("staged", events_as_arrow(rows))
        self._staged_count = len(rows)

    def _judge_rows(self, repeats: Collection[int], stored: Collection[int]) -> str:
        """Stage which rows do not count and which are stored; return the condition for the commit's statements."""
        if repeats:
            self._connection.insert_arrow("staged_repeats", seqs_as_arrow(repeats))
        if stored:
            self._connection.insert_arrow("staged_stored", seqs_as_arrow(stored))
        return self._condition(len(repeats), len(stored))

    def _empty_staging(self) -> None:
        if not self._has_staging:
            for statement in STAGING:
                self._connection.run(statement)
        self._has_staging = False  # until the commit succeeds: a failure may mean that the session is lost
        for table in _STAGED_TABLES:
            self._connection.run(f"TRUNCATE TABLE {table}")

    def _condition(self, repeats: int, stored: int) -> str:
        """Return the condition that every statement of a commit checks on the engine before inserting."""
        return _IS_COMPLETE.format(staged=self._staged_count, repeats=repeats, stored=stored)

    def _store(self, table: str, sql: str, range_name: str) -> None:  # noqa: ARG002 - for a server
        self._connection.run(sql)


class ChdbWarehouse(ClickHouseWarehouse):
    """The embedded warehouse. Opening it creates its tables."""

    def __init__(self, connection: Connection, *, filter_bytes_max: int = FILTER_BYTES_MAX) -> None:
        for statement in TABLES:
            connection.run(statement)
        repair_event_days(connection)
        super().__init__(connection, filter_bytes_max=filter_bytes_max)
        self._seen.build()


def _after(positions: Mapping[int, int], received_from_ms: int) -> str:
    """Return the condition for rows of records after the given ones, received since a given time.

    Nearly every granule holds rows of several streams, so the index on `received_at` helps more than that on `seq`.
    """
    after = " OR ".join(
        f"(seq >= {first_seq(stream, number + 1)} AND seq < {first_seq(stream + 1, 0)})"
        for stream, number in positions.items()
    )
    return f"received_at >= {received_from_ms} AND ({after})"


def _day_numbers(window: Window) -> tuple[int, int]:
    return window.first.toordinal() - _EPOCH_ORDINAL, window.last.toordinal() - _EPOCH_ORDINAL
