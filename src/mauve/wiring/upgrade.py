"""Wires an upgrade: refuse newer files, copy older ones, migrate them, and note their formats.

The warehouse is first: its tables only gain, so the release before works with them whatever happens next. The SQL
databases follow in transactions, and the note comes last. Whatever fails before it leaves data for the release before.
"""

import os
import shlex
import time
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Final

import structlog

from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.maintenance.directory_copy import CopyRules, DirectoryCopy, copy_before_upgrade
from mauve.maintenance.disk_space import format_bytes
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.stores import NewerSchemaError
from mauve.stores.data_directory import other_server
from mauve.stores.formats import FORMATS, Formats, newer_formats, read_formats, write_formats
from mauve.stores.log.files import frames
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, LEDGER, check_not_newer, migrate, migrate_files, newest_revision
from mauve.stores.sql.snapshot import SqliteSnapshot
from mauve.stores.warehouse.chdb.connection import ChdbConnection, is_part_file
from mauve.stores.warehouse.schema import EMBEDDED_FORMAT
from mauve.wiring.paths import (
    accepted_path,
    catalog_path,
    identity_path,
    ledger_path,
    log_path,
    machine_path,
    master_key_path,
    warehouse_path,
)

FILE_FORMATS: Final[Mapping[str, int]] = {
    "warehouse": EMBEDDED_FORMAT,
    "log": frames.FORMAT,
}
"""The formats of files that this release reads and writes."""
_TOLD_EVERY_S: Final = 5.0
_OLDER: Final = "an earlier release"

log = structlog.get_logger()


def upgrade(settings: Settings, catalog: Database, ledger: Database) -> None:
    """Bring every store to the format of this release; do nothing if they are."""
    check_formats(settings.data, _formats(settings))
    if settings.database_url is None:
        _upgrade_files(settings, catalog, ledger)
        return
    migrate(catalog, CATALOG)
    migrate(ledger, LEDGER)
    _upgrade_other_files(settings)


def check_formats(data: Path, known: Mapping[str, int]) -> None:
    """Raise if a newer release has noted formats that this one does not know."""
    noted = read_formats(data)
    newer = [] if noted is None else newer_formats(noted.stores, known)
    if noted is not None and newer:
        raise NewerSchemaError(
            f"the data was last used by mauve {noted.mauve} and this is {version('mauve')} "
            f"({', '.join(newer)}): run {noted.mauve} or newer, or restore the copy or backup made before it"
        )


def _formats(settings: Settings) -> Mapping[str, int]:
    """Return the format of each store that this installation has in files."""
    on_servers = {"warehouse"} if settings.warehouse_url is not None else set()
    on_servers |= {"log"} if settings.stream_url is not None else set()
    return {name: number for name, number in FILE_FORMATS.items() if name not in on_servers}


def _upgrade_files(settings: Settings, catalog: Database, ledger: Database) -> None:
    files = ((catalog, CATALOG), (ledger, LEDGER))
    revisions = {chain.name: check_not_newer(database, chain) for database, chain in files}
    newest = {chain.name: newest_revision(chain) for _, chain in files}
    if revisions[CATALOG.name] is None:  # new: there is nothing to go back to
        migrate_files(files)
        _note_formats(settings)
        return
    steps = [f"{name} {revisions[name]} to {newest[name]}" for name in newest if revisions[name] != newest[name]]
    steps += _old_formats(settings)
    if not steps:
        _note_formats(settings)
        return
    _refuse_while_served(settings.data)
    copy = _copy(settings, steps)
    try:
        _migrate_warehouse(settings)
        migrate_files(files)
        _note_formats(settings)
    except Exception as error:
        log.exception("upgrade_failed", steps=steps)
        is_unchanged = revisions == {chain.name: check_not_newer(database, chain) for database, chain in files}
        raise MaintenanceFailedError(_advice_after(error, settings.data, copy, is_unchanged=is_unchanged)) from error


def _upgrade_other_files(settings: Settings) -> None:
    """Bring the files of an installation with its databases on a server up to date. They are not copied."""
    if steps := _old_formats(settings):
        _refuse_while_served(settings.data)
        log.info("migrating_files", steps=steps)
        _migrate_warehouse(settings)
    _note_formats(settings)


def _old_formats(settings: Settings) -> list[str]:
    """Return the stores with files of an older format. A directory without a note is older than any."""
    noted = read_formats(settings.data)
    stores = {} if noted is None else noted.stores
    if noted is None and not warehouse_path(settings.data).exists():
        return []  # no service has run on it yet
    old = {name: stores.get(name, 0) for name, new in _formats(settings).items() if stores.get(name, 0) < new}
    return [f"{name} {number} to {FILE_FORMATS[name]}" for name, number in old.items()]


def _note_formats(settings: Settings) -> None:
    formats = _formats(settings)
    wanted = Formats(version("mauve"), dict(formats))
    if formats and read_formats(settings.data) != wanted:
        write_formats(settings.data, wanted)


def _migrate_warehouse(settings: Settings) -> None:
    noted = read_formats(settings.data)
    is_old = noted is None or noted.stores.get("warehouse", 0) < EMBEDDED_FORMAT
    path = warehouse_path(settings.data)
    if settings.warehouse_url is None and is_old and path.exists():
        from mauve.stores.warehouse.warehouse import migrate_embedded  # noqa: PLC0415 - slow, and rarely needed

        with closing(ChdbConnection(path)) as connection:
            migrate_embedded(connection)


def _refuse_while_served(data: Path) -> None:
    holder = other_server(data)
    if holder is not None:
        raise MaintenanceRefusedError(
            f"an older release is running on {data} (process {holder.pid}) and this one would have to migrate its "
            f"data: stop it first, or use the command of the release that is running"
        )


def _copy(settings: Settings, steps: list[str]) -> DirectoryCopy | None:
    if settings.upgrade_copies == 0:
        log.info("upgrading", steps=steps, advice="no copy is made, because MAUVE_UPGRADE_COPIES is 0")
        return None
    noted = read_formats(settings.data)
    release = _OLDER if noted is None else noted.mauve
    copy = copy_before_upgrade(
        settings.data.absolute(),
        copy_rules(),
        _LoggedProgress(),
        release=release,
        now_ms=SystemClock().now_ms(),
        keep=settings.upgrade_copies,
    )
    log.info(
        "copied_before_upgrade",
        steps=steps,
        folder=str(copy.folder),
        copied=format_bytes(copy.copied_bytes),
        linked=format_bytes(copy.linked_bytes),
        to_go_back=f"install {_named(release)} again and run: {_way_back(settings.data, copy)}",
        advice=f"delete it once the new release has proved itself (rm -r {shlex.quote(str(copy.folder))}): "
        "it keeps the space of replaced files, and the data of persons who are erased later",
    )
    return copy


def copy_rules() -> CopyRules:
    """Return which files of a data directory are copied, and which of them are linked."""
    here = Path()
    warehouse = warehouse_path(here)
    stores = (catalog_path(here), ledger_path(here), log_path(here), warehouse, accepted_path(here))
    notes = (master_key_path(here), identity_path(here), machine_path(here), here / FORMATS)

    def is_immutable(place: PurePath) -> bool:
        return place.is_relative_to(warehouse) and is_part_file(place.relative_to(warehouse))

    return CopyRules(is_immutable, SqliteSnapshot, frozenset(path.name for path in (*stores, *notes)))


def _named(release: str) -> str:
    return "the release before" if release == _OLDER else f"mauve {release}"


def _way_back(data: Path, copy: DirectoryCopy) -> str:
    return shlex.join(["mauve", "restore", str(copy.folder), "--data", str(_restore_target(data.absolute()))])


def _restore_target(data: Path) -> Path:
    """Return a directory beside the data, or in it if beside it is another disk or a read-only one: a container."""
    if data.is_mount() or not os.access(data.parent, os.W_OK):
        return data / "restored"
    return data.with_name(f"{data.name}-restored")


def _advice_after(error: Exception, data: Path, copy: DirectoryCopy | None, *, is_unchanged: bool) -> str:
    way_back = "restore your backup" if copy is None else f"run '{_way_back(data, copy)}'"
    if is_unchanged:
        return (
            f"{data} could not be upgraded ({error}) and is as it was: start the release before again, "
            f"or mend the cause and try again; should the release before not start, {way_back} with it"
        )
    return (
        f"{data} was upgraded only in part ({error}): mend the cause and start this release again, "
        f"or go back: install the release before and {way_back}"
    )


class _LoggedProgress:
    """Logs how far a copy has come, every few seconds."""

    def __init__(self) -> None:
        self._stage = ""
        self._total = self._done = 0
        self._told_at = time.monotonic()

    def begin(self, stage: str, total: int) -> None:
        self._stage, self._total, self._done = stage, total, 0
        log.info("copying_before_upgrade", size=format_bytes(total))

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._told_at >= _TOLD_EVERY_S:
            self._told_at = time.monotonic()
            percent = min(100, 100 * self._done // max(1, self._total))
            log.info("copying_before_upgrade", percent=percent, size=format_bytes(self._total))
