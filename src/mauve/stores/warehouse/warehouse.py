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
from mauve.stores.warehouse import Connection, EventRows, RowsRefusedError, SameId, WarehouseUnavailableError, first_seq
from mauve.stores.warehouse.columns import events_as_arrow, seen_as_arrow, seqs_as_arrow
from mauve.stores.warehouse.schema import ADD_EVENT_DAYS, STAGING, TABLES, day_from, day_number
from mauve.stores.warehouse.seen_ids import NO_IDS, SeenIds, received_ids, same_ids, staged_ids

STORED_AFTER_MAX: Final = 5_000_000  # several times the largest range
ID_HASH: Final = "sipHash128(project, '/', id)"
_STAGED_TABLES: Final = ("staged", "staged_repeats", "staged_stored")
_HASHED_IDS: Final = f"SELECT seq, {ID_HASH} FROM staged WHERE id != ''"
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
    SELECT {ID_HASH}, received_at, toDate({_RECEIVED_DAY}) FROM staged
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
    """The loader's side of a warehouse whose tables exist: stage, decide what counts, commit; sum up closed days.

    - When `commit` returns, the staged rows are durable: they survive a power cut.
    - A failed `commit` may have stored some of the rows: call `stored_after` before loading them again.
    - Rows that do not count are stored, but not included in any count or sketch.
    - If the staged rows are lost, `commit` fails and stores nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._has_staging = False
        self._seen = SeenIds(connection)
        self._staged_count = 0
        self._staged_ids = NO_IDS

    def stage(self, rows: EventRows) -> list[SameId]:
        """Stage the rows, replacing any staged earlier.

        Return the ids that were already counted, and those shared by several rows.
        """
        self._stage_rows(rows)
        self._staged_ids = staged_ids(rows, self._connection.binary(_HASHED_IDS)) if any(rows.id.lengths) else NO_IDS
        return same_ids(self._staged_ids, self._seen)

    def commit(self, repeats: Collection[int], stored: Collection[int], range_name: str = "") -> None:
        """Store the staged rows. `repeats` do not count; `stored` are already stored and only update the sketches.

        A server stores the rows of one range name only once, even if two loaders commit it concurrently.
        """
        is_complete = self._stage_exceptions(repeats, stored)
        counted = self._staged_ids.without(repeats).without(stored)  # Stored ones are known, see `recover_ids`.
        self._seen.add(counted.hashes, counted.received_days)
        for table, statement in COMMIT.items():
            self._store(table, statement.format(is_complete=is_complete), range_name)
        self._has_staging = True

    def stored_after(self, positions: Mapping[int, int], received_from_ms: int = 0) -> dict[int, bool]:
        """Return the rows of all records after the given ones, by stream: seq → whether the row counts.

        Omit those received before a given time; without one, the whole table is scanned.
        """
        if not positions:
            return {}
        self._sync_replica()
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
        """Make `stage` find the ids of rows that count: the commit that stored them may have failed."""
        counted = f"{_after(positions, received_from_ms)} AND counted AND id != ''"
        rows = self._connection.binary(f"SELECT received_at, {ID_HASH} FROM events WHERE {counted}")
        received_at, days, hashes = received_ids(rows)
        if not len(hashes):
            return
        counted_at = self._seen.counted_at(hashes, int(days.min()))
        # Otherwise, every attempt would add all of them again.
        missing = np.array([at not in counted_at.get(place, ()) for place, at in enumerate(received_at.tolist())])
        self._seen.add(hashes[missing], days[missing])
        self._connection.insert_arrow("seen", seen_as_arrow(hashes[missing], received_at[missing], days[missing]))

    def forget_ids(self) -> None:
        """Make `stage` find the ids that another loader has counted. No other can open an embedded warehouse."""

    def expire_ids(self, loaded_through_ms: int) -> None:
        """Expire ids that no event received after this time can repeat within the window.

        Every event received earlier must be loaded, because a waiting event may repeat an id from days ago.
        """
        try:
            self._seen.expire(loaded_through_ms)
        except (RowsRefusedError, WarehouseUnavailableError) as error:
            log.warning("ids_not_expired", reason=str(error), advice="retried at the next load")

    def first_day(self) -> date | None:
        """Return the earliest day with any activity."""
        ((number, count),) = self._connection.rows("SELECT toUInt16(min(day)), count() FROM actives")
        return day_from(number) if count else None

    def users_of_days(self, window: Window) -> list[DayUsers]:
        """Return the users of every project on every day of the window that has any."""
        first, last = day_number(window.first), day_number(window.last)
        rows = self._connection.read(_USERS_OF_DAYS, {"first": first, "last": last})
        return [DayUsers(project, Activity(kind), day, users) for project, kind, day, users in rows]

    def merge_week(self, week: Window) -> None:
        """Merge the sketches of a week into an additional one, durably. Safe to repeat."""
        first, last = day_number(week.first), day_number(week.last)
        of_week = _OF_WEEK.format(first=first)
        # Left from an earlier attempt, or from before the week was reopened: remove the users of an undone import.
        if self._connection.rows(_HAS_WEEK.format(of_week=of_week)) != [(0,)]:
            self._connection.run(_DROP_WEEK.format(of_week=of_week))
        self._connection.run(_SUM_UP_WEEK.format(first=first, last=last))

    def ping(self) -> None:
        self._connection.rows("SELECT 1")

    def _sync_replica(self) -> None:
        """Wait until this replica has all rows that other replicas have stored; an embedded engine has no others."""

    def _stage_rows(self, rows: EventRows) -> None:
        self._empty_staging()
        self._connection.insert_arrow("staged", events_as_arrow(rows))
        self._staged_count = len(rows)

    def _stage_exceptions(self, repeats: Collection[int], stored: Collection[int]) -> str:
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

    def __init__(self, connection: Connection) -> None:
        for statement in TABLES:
            connection.run(statement)
        _repair_event_days(connection)
        super().__init__(connection)
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


# After a power cut, the daily sums of events may be damaged: the engine does not sync them with the rows. It detects
# missing or truncated sums at startup and sums the rows instead: correct but slower, and such parts are never merged
# with others. Sums of the right length with wrong bytes fail every read. Both are rebuilt from the rows.
_DROP_SUMS: Final = "ALTER TABLE events DROP PROJECTION event_days SETTINGS mutations_sync = 1"
_REBUILD_SUMS: Final = "ALTER TABLE events MATERIALIZE PROJECTION event_days"
_MISSING_SUMS: Final = """
SELECT count() FROM system.projection_parts
WHERE database = currentDatabase() AND table = 'events' AND is_broken AND active
"""
_SUM: Final = "SELECT sum(counted) FROM events"
_FROM_ROWS: Final = f"{_SUM} SETTINGS optimize_use_projections = 0"


def _repair_event_days(connection: Connection) -> None:
    """Rebuild missing sums in the background; drop damaged ones first."""
    if not _can_read(connection, _SUM):  # This reads all of them, and every block has a checksum.
        if not _can_read(connection, _FROM_ROWS):
            log.error("events_unreadable", advice="a part of the warehouse is damaged: restore it from a backup")
            return  # New events can still be loaded.
        log.warning("event_sums_damaged", advice="they are rebuilt from the events")
        connection.run(_DROP_SUMS)
        connection.run(ADD_EVENT_DAYS)
        connection.run(_REBUILD_SUMS)
    elif connection.rows(_MISSING_SUMS) != [(0,)]:
        log.info("event_sums_missing", advice="they are rebuilt from the events")
        connection.run(_REBUILD_SUMS)


def _can_read(connection: Connection, sql: str) -> bool:
    try:
        connection.rows(sql)
    except (RowsRefusedError, WarehouseUnavailableError):
        return False
    return True
