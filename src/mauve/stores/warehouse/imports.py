"""Store rows of imports, and remove them again.

Users cannot be subtracted from a sketch. So on every day that an import touches, the users of each source are also
stored separately: those of the import under `project/number`, and earlier ones under `project/0`. Undoing an import
merges the sketches of the other sources with the users of other events. Before those events are anonymized, their users
are added to `project/0`, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mauve.stores.imports import ROWS_MAX, StoredRows, seq_of
from mauve.stores.warehouse import EventRows
from mauve.stores.warehouse.schema import IS_IMPORTED
from mauve.stores.warehouse.server.warehouse import ServerWarehouse
from mauve.stores.warehouse.warehouse import COMMIT, COUNTS, DAY, ClickHouseWarehouse

_KINDS: Final = "kind IN ('active', 'signup')"
_DAYS_AT_ONCE: Final = 366  # A sketch may take 100 KB.
# An insert may contain any of the 2,160 months from 1970 to 2149.
_ANY_MONTHS: Final = " SETTINGS max_partitions_per_insert_block = 2200"
# Every month is synced separately.
_SERVER_S_MAX: Final = 600
_PROJECT: Final = re.compile(r"[A-Za-z0-9_-]+")

_STORED: Final = """
SELECT seq, counted FROM events
WHERE project = '{project}' AND seq BETWEEN {first} AND {last} AND seq IN (SELECT seq FROM staged)
"""
_REPEATS: Final = """
SELECT seq FROM staged WHERE id != '' AND (
    id IN (
        SELECT id FROM events
        WHERE project = '{project}' AND counted AND id IN (SELECT id FROM staged WHERE id != '')
            AND seq NOT IN (SELECT seq FROM staged)
    )
    OR seq NOT IN (SELECT min(seq) FROM staged WHERE id != '' GROUP BY id)
)
"""
_KEEP_OTHERS: Final = f"""
INSERT INTO actives (project, kind, day, users)
SELECT '{{project}}/0', kind, day, uniqCombined64MergeState(17)(users) FROM actives
WHERE project = '{{project}}' AND {_KINDS} AND day IN (SELECT DISTINCT {DAY} FROM staged)
    AND day NOT IN (SELECT day FROM actives WHERE startsWith(project, '{{project}}/'))
GROUP BY kind, day
"""
_KEEP_OWN: Final = f"""
INSERT INTO actives (project, kind, day, users)
SELECT '{{project}}/{{number}}', if(name = 'user_signup', 'signup', 'active') AS kind, {DAY} AS day,
    uniqCombined64State(17)(user)
FROM staged WHERE {{is_complete}} AND user != '' AND {COUNTS}
GROUP BY kind, day
"""
_REBUILD_FROM_SOURCES: Final = """
INSERT INTO actives (project, kind, day, users)
SELECT '{project}', kind, day, uniqCombined64MergeState(17)(users) FROM actives
WHERE startsWith(project, '{project}/') AND project != '{project}/{number}' AND day IN ({days})
GROUP BY kind, day
"""
# Events that arrived after the sources were separated.
_REBUILD_FROM_EVENTS: Final = """
INSERT INTO actives (project, kind, day, users)
SELECT project, if(name = 'user_signup', 'signup', 'active') AS kind, day, uniqCombined64State(17)(user) FROM events
WHERE project = '{project}' AND day IN ({days}) AND user != '' AND counted
GROUP BY project, kind, day
"""
# The tables of a backup are not one snapshot: either may lack an import that the other has.
_STORED_IMPORTS: Final = f"""
SELECT DISTINCT toString(project), intDiv(seq - {seq_of(0, 0)}, {ROWS_MAX}) FROM events WHERE {IS_IMPORTED}
UNION DISTINCT
SELECT DISTINCT splitByChar('/', project)[1], toUInt64(splitByChar('/', project)[2]) FROM actives
WHERE position(project, '/') > 0 AND NOT endsWith(project, '/0')
"""
_DELETE: Final = "ALTER TABLE {table} DELETE WHERE {condition} SETTINGS mutations_sync = 2"


class EmbeddedImports(ClickHouseWarehouse):
    _settings = _ANY_MONTHS

    def store(self, number: int, rows: EventRows) -> StoredRows:
        if not rows:
            return StoredRows(0, 0)
        self._sync_replica()
        names: dict[str, str | int] = {
            "project": _checked(rows.project[0]),
            "number": number,
            "first": min(rows.seq),
            "last": max(rows.seq),
        }
        self._stage_rows(rows)
        known = {seq: counted == 1 for seq, counted in self._rows(_STORED, names)}
        repeats = {seq for (seq,) in self._rows(_REPEATS, names) if seq not in known} if any(rows.id.lengths) else set()
        repeats |= {seq for seq, counts in known.items() if not counts}
        is_complete = self._stage_exceptions(repeats, known.keys())
        range_name = f"import {number}: {names['first']}-{names['last']}"
        # In this order: separate the users of each source before adding those of the import.
        self._store("events", COMMIT["events"].format(is_complete=is_complete), range_name)
        self._store("others", _KEEP_OTHERS.format(**names), "")
        self._store("own", _KEEP_OWN.format(is_complete=is_complete, **names), "")
        self._store("actives", COMMIT["actives"].format(is_complete=is_complete), "")
        self._has_staging = True
        return StoredRows(len(rows) - len(repeats), len(repeats))

    def row_count(self, project: str, number: int) -> int:
        ((count,),) = self._connection.rows(f"SELECT count() FROM events WHERE {_of_import(project, number)}")
        return count

    def undo(self, project: str, number: int) -> int:
        self._sync_replica()
        count = self.row_count(project, number)
        if count:
            self._delete("events", _of_import(project, number))
        for days in _some_of(self._days(f"project = '{_checked(project)}/{number}'")):
            named = {"project": project, "number": number, "days": _day_list(days)}
            self._delete("actives", "project = '{project}' AND day IN ({days}) AND ".format(**named) + _KINDS)
            for statement in (_REBUILD_FROM_SOURCES, _REBUILD_FROM_EVENTS):
                self._store("actives", statement.format(**named), "")
        # Last, because they show which days have to be rebuilt.
        self._delete("actives", f"project = '{project}/{number}'")
        of_imports = self._days(f"startsWith(project, '{project}/') AND project != '{project}/0'")
        for days in _some_of(set(self._days(f"project = '{project}/0'")) - set(of_imports)):
            self._delete("actives", f"project = '{project}/0' AND day IN ({_day_list(days)})")
        return count

    def close(self) -> None:
        self._connection.close()

    def _store(self, table: str, sql: str, range_name: str) -> None:
        super()._store(table, sql.rstrip() + self._settings, range_name)

    def _rows(self, sql: str, names: dict[str, str | int]) -> list[tuple[int, ...]]:
        return self._connection.rows(sql.format(**names))

    def _days(self, condition: str) -> list[int]:
        return [
            day for (day,) in self._connection.rows(f"SELECT DISTINCT toUInt16(day) FROM actives WHERE {condition}")
        ]

    def _delete(self, table: str, condition: str) -> None:
        """Return once every part is rewritten. After a crash, the rewrite resumes at the next start."""
        self._connection.run(_DELETE.format(table=table, condition=condition))


class ServerImports(EmbeddedImports, ServerWarehouse):
    _settings = f"{_ANY_MONTHS}, max_execution_time = {_SERVER_S_MAX}"

    def stored_imports(self) -> list[tuple[str, int]]:
        """Return the project and number of every import that has rows or users."""
        self._sync_replica()
        return sorted((project, int(number)) for project, number in self._connection.read(_STORED_IMPORTS, {}))


def _of_import(project: str, number: int) -> str:
    first = seq_of(number, 0)
    return f"project = '{_checked(project)}' AND seq BETWEEN {first} AND {first + ROWS_MAX - 1}"


def _checked(project: str) -> str:
    """Return a project id that is safe to embed in a statement."""
    if _PROJECT.fullmatch(project) is None:
        raise ValueError("a project id may contain only letters, digits, dashes and underscores")
    return project


def _day_list(days: Sequence[int]) -> str:
    return ", ".join(f"toDate(toUInt16({day}))" for day in days)


def _some_of(days: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(days)
    for start in range(0, len(ordered), _DAYS_AT_ONCE):
        yield ordered[start : start + _DAYS_AT_ONCE]
