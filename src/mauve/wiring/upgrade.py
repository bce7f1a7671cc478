"""Wires an upgrade: back up an embedded installation, then migrate its databases.

The embedded warehouse and the log segments have no version number. A release that changes their format incompatibly
adds a ledger migration, possibly an empty one: older releases then refuse the data, and a backup is made first.
"""

import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.stores.data_directory import other_server
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, LEDGER, check_not_newer, migrate, migrate_files, newest_revision
from mauve.wiring.cluster import has_servers

BACKUPS: Final = "before-upgrades"

log = structlog.get_logger()


def upgrade(settings: Settings, catalog: Database, ledger: Database) -> None:
    """Migrate catalog and ledger to this release's tables, if needed."""
    if settings.database_url is not None:
        migrate(catalog, CATALOG)
        migrate(ledger, LEDGER)
        return
    files = ((catalog, CATALOG), (ledger, LEDGER))
    revisions = {chain: check_not_newer(database, chain) for database, chain in files}
    if revisions[CATALOG] is None:  # new: there is nothing to go back to
        migrate_files(files)
        return
    if all(revision == newest_revision(chain) for chain, revision in revisions.items()):
        return
    _refuse_while_served(settings.data)
    backup = _back_up(settings)
    try:
        migrate_files(files)
    except Exception as error:
        log.exception("upgrade_failed")
        raise MaintenanceFailedError(_advice_after(error, settings.data, backup)) from error


def _refuse_while_served(data: Path) -> None:
    holder = other_server(data)
    if holder is not None:
        raise MaintenanceRefusedError(
            f"an older release is running on {data} (process {holder.pid}) and this one would have to migrate its "
            f"data: stop it first, or use the running release's command"
        )


def _back_up(settings: Settings) -> str | None:
    """Back up the current data and return the file; None if backups are off or engines are on servers."""
    if settings.upgrade_backups == 0 or has_servers(settings):
        log.info("upgrading_without_backup")
        return None
    from mauve.maintenance import Progress  # noqa: PLC0415
    from mauve.maintenance.backup import write_backup  # noqa: PLC0415
    from mauve.maintenance.encryption import backup_keys  # noqa: PLC0415
    from mauve.maintenance.stored_backups import tidy_up  # noqa: PLC0415
    from mauve.wiring.backups import open_backup_store, target_in  # noqa: PLC0415
    from mauve.wiring.maintenance import backup_sources, offline_pause  # noqa: PLC0415 - slow, rarely needed

    folder = (settings.data / BACKUPS).absolute()
    folder.mkdir(mode=0o700, exist_ok=True)
    log.info("backing_up_before_upgrade", folder=str(folder))
    now_ms, store = SystemClock().now_ms(), open_backup_store(settings.backup, str(folder))
    keys = backup_keys(settings.master_key) if settings.backup.encrypts and settings.master_key else None
    name, target = target_in(settings, str(folder), store, now_ms, keys)
    sources = backup_sources(settings, lambda: offline_pause(settings))
    try:
        made = write_backup(sources, target, now_ms, version("mauve"), Progress())
    except MaintenanceRefusedError as error:
        advice = "or set MAUVE_UPGRADE_BACKUPS=0 to upgrade without a backup"
        raise MaintenanceRefusedError(f"the backup before the upgrade was not made: {error}, {advice}") from error
    tidy_up(store, name, settings.upgrade_backups, now_ms)
    log.info("backed_up_before_upgrade", file=made.file, advice="delete it once you no longer need to roll back")
    return made.file


def _advice_after(error: Exception, data: Path, backup: str | None) -> str:
    file = "YOUR_BACKUP" if backup is None else shlex.quote(backup)
    return (
        f"{data} could not be upgraded ({error}): fix the cause, then restart this release, or start the previous "
        f"release again; if that fails, run 'mauve restore {file} --data NEW_DIRECTORY' with it"
    )
