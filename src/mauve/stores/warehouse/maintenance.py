"""Freeze the warehouse, anonymize its rows, and delete projects."""

import hashlib
import secrets
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

from mauve.core.times import DAY_MS
from mauve.stores.maintenance import Frozen
from mauve.stores.warehouse import Connection, WarehouseUnavailableError
from mauve.stores.warehouse.schema import FROZEN_FOLDER, IS_IMPORTED, KEPT_TABLES, TABLES, day_number

_FROZEN_NAME: Final = "backup"
_FOLDERS: Final = (
    "SELECT name, data_paths[1] FROM system.tables WHERE database = currentDatabase() AND notEmpty(data_paths)"
)
# The row still counts on its day, under its name. Its times are reduced to days; its seq stays, because the loader
# needs it after a crash.
_BLANK: Final = f"""
user = '', id = '', props = '', claimed_at = '',
occurred_at = intDiv(occurred_at, {DAY_MS}) * {DAY_MS}, received_at = intDiv(received_at, {DAY_MS}) * {DAY_MS}
"""
_IS_RAW: Final = "(user != '' OR id != '' OR props != '' OR claimed_at != '')"
# Undoing an import recounts the users of its days, who are no longer in the events. Users of imports are stored
# separately, see `stores.warehouse.imports`.
_KEEP_USERS: Final = f"""
INSERT INTO actives (project, kind, day, users)
SELECT concat(project, '/0') AS source, if(name = 'user_signup', 'signup', 'active') AS kind, day,
    uniqCombined64State(17)(user)
FROM events
WHERE {{condition}} AND user != '' AND counted AND NOT {IS_IMPORTED} AND (toString(project), day) IN (
    SELECT splitByChar('/', toString(project))[1], day FROM actives WHERE position(project, '/') > 0
)
GROUP BY source, kind, day
"""
# The text of a mutation stays on disk for a while, and in a server's logs: it holds a salted digest, never the name.
_OF_THE_PERSON: Final = (
    "project = {project:String} AND CRC32(user) = {checksum:UInt32}"
    " AND SHA256(concat({salt:String}, user)) = unhex({digest:String})"
)
# The users of one source of a project, such as an import, are stored under `project/number`.
_OF_THE_PROJECT: Final = "(project = {project:String} OR startsWith(project, concat({project:String}, '/')))"


class RowMaintenance:
    """Anonymizes and deletes rows, on every engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def erase_user(self, project: str, user: str) -> int:
        salt = secrets.token_hex(16)
        digest = hashlib.sha256(f"{salt}{user}".encode()).hexdigest()
        checksum = zlib.crc32(user.encode())  # Rules out nearly all rows, much faster.
        named: dict[str, str | int] = {"project": project, "checksum": checksum, "salt": salt, "digest": digest}
        return self._blank(_OF_THE_PERSON, named)

    def anonymize_raw_before(self, day: date) -> int:
        return self._blank(f"day < toDate(toUInt16({day_number(day)})) AND {_IS_RAW}", {})

    def delete_project(self, project: str) -> int:
        named = {"project": project}
        ((count,),) = self._connection.read(f"SELECT count() FROM events WHERE {_OF_THE_PROJECT}", named)
        for table in ("events", "actives"):
            # Returns once every part is rewritten. After a crash, the rewrite resumes at the next start.
            self._connection.run(
                f"ALTER TABLE {table} DELETE WHERE {_OF_THE_PROJECT} SETTINGS mutations_sync = 2", named
            )
        return int(count)

    def close(self) -> None:
        self._connection.close()

    def _blank(self, condition: str, bound: Mapping[str, str | int]) -> int:
        ((counted,),) = self._connection.read(f"SELECT count() FROM events WHERE {condition}", bound)
        count = int(counted)
        if count:
            self._connection.run(_KEEP_USERS.format(condition=condition), bound)
            # Returns once every part is rewritten. After a crash, the rewrite resumes at the next start.
            self._connection.run(
                f"ALTER TABLE events UPDATE {_BLANK} WHERE {condition} SETTINGS mutations_sync = 2", bound
            )
        return count


class ChdbMaintenance(RowMaintenance):
    """Uses its own connection, so that a long rewrite does not block others."""

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection)
        self._shadow = path.absolute() / FROZEN_FOLDER  # absolute, for processes with another working directory
        for statement in TABLES:
            connection.run(statement)

    def freeze(self) -> Frozen:
        self.thaw()
        for table in KEPT_TABLES:
            # Hard links: fast, and they take space only for parts that are merged or rewritten before `thaw`.
            self._connection.run(f"ALTER TABLE {table} FREEZE WITH NAME '{_FROZEN_NAME}'")
        folders = {table: self._frozen_folder(folder) for table, folder in self._table_folders().items()}
        return Frozen(folders, _rows_in(folders["events"]))

    def thaw(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._shadow)

    def adopt(self, frozen: Frozen) -> None:
        folders_by_table = self._table_folders()
        for table in KEPT_TABLES:
            for part in _parts_in(frozen.folders[table]):
                part.rename(folders_by_table[table] / "detached" / part.name)
                self._connection.run(f"ALTER TABLE {table} ATTACH PART '{part.name}'")
        ((found,),) = self._connection.rows("SELECT count() FROM events")
        if found != frozen.events:
            raise WarehouseUnavailableError(f"{found} of {frozen.events} events were restored")

    def _table_folders(self) -> dict[str, Path]:
        return {name: Path(path) for name, path in self._connection.read(_FOLDERS, {}) if name in KEPT_TABLES}

    def _frozen_folder(self, folder: Path) -> Path:
        """Return the folder of a table's frozen parts; a table without parts has none."""
        return self._shadow.joinpath(_FROZEN_NAME, *folder.parts[-3:])


def _parts_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.exists() else []


def _rows_in(folder: Path) -> int:
    """Count the frozen rows: the table may have grown since."""
    return sum(int((part / "count.txt").read_text()) for part in _parts_in(folder))
