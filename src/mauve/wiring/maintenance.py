"""Wires maintenance: export, import, erasure and retention on every engine, backup and restore on embedded ones."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mauve.config import Settings
from mauve.control import ControlParts
from mauve.maintenance.backup import BackupSources, LoaderPause
from mauve.maintenance.disk_space import bytes_in
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.restore import RestoreSteps
from mauve.maintenance.retention import Forgotten, Retention
from mauve.stores.export import EventExport
from mauve.stores.imports import ImportWarehouse
from mauve.stores.ledger.export import LedgerExport
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.ledger.maintenance import LedgerMaintenance
from mauve.stores.log.files.maintenance import copy_unloaded
from mauve.stores.maintenance import Frozen, WarehouseMaintenance
from mauve.stores.sql.copy import SqliteSnapshot
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, LEDGER, check_not_newer
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.export import ClickHouseEventExport
from mauve.stores.warehouse.maintenance import ChdbMaintenance, RowMaintenance
from mauve.stores.warehouse.schema import FROZEN_FOLDER, KEPT_TABLES, TABLES
from mauve.stores.warehouse.server.server import ServerAddress, address_from, open_for_maintenance
from mauve.wiring.cluster import is_shared
from mauve.wiring.databases import MAINTENANCE_STATEMENT_S, open_ledger_database, open_load_ledger
from mauve.wiring.log import open_log_reader
from mauve.wiring.paths import (
    backup_drafts_path,
    catalog_path,
    ledger_path,
    log_path,
    master_key_path,
    warehouse_path,
)

if TYPE_CHECKING:
    from mauve.stores.warehouse.imports import ServerImports

_FORGOTTEN_FACT: Final = "raw_events_forgotten"
_forgotten: Final = msgspec.json.Decoder(Forgotten)
_BUSY_TIMEOUT_S: Final = 5.0
_OWN_BACKUPS: Final = "the warehouse is on ClickHouse: use ClickHouse's own BACKUP and RESTORE for it"


@contextmanager
def open_import_ledger(settings: Settings) -> Iterator[ImportLedger]:
    database = open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)
    with closing(ImportLedger(database)) as ledger:
        yield ledger


@contextmanager
def open_import_warehouse(settings: Settings) -> Iterator[ImportWarehouse]:
    """Open the warehouse for imports: on a server, in the core, or while no service runs."""
    from mauve.stores.warehouse.imports import EmbeddedImports  # noqa: PLC0415 - pyarrow is slow to import

    if settings.warehouse_url is None:
        with closing(open_embedded_warehouse(settings)) as connection:
            yield EmbeddedImports(connection)
        return
    with open_server_imports(address_from(settings.warehouse_url)) as warehouse:
        yield warehouse


@contextmanager
def open_server_imports(address: ServerAddress) -> Iterator["ServerImports"]:
    from mauve.stores.warehouse.imports import ServerImports  # noqa: PLC0415 - pyarrow is slow to import

    with closing(open_for_maintenance(address)) as server:
        yield ServerImports(server, is_replicated=address.cluster is not None)


def open_event_export(settings: Settings) -> EventExport:
    """Open the warehouse for an export: on a server, in the core, or while no service runs."""
    if settings.warehouse_url is not None:
        return ClickHouseEventExport(open_for_maintenance(address_from(settings.warehouse_url)))
    return ClickHouseEventExport(open_embedded_warehouse(settings))


def open_embedded_warehouse(settings: Settings) -> ChdbConnection:
    """Open the warehouse with its tables, in the process that loads or while no service runs."""
    connection = ChdbConnection(warehouse_path(settings.data))
    for statement in TABLES:  # It may open before the loader does.
        connection.run(statement)
    return connection


def open_ledger_export(settings: Settings) -> LedgerExport:
    return LedgerExport(open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S))


class ServerMaintenance(RowMaintenance):
    """Maintenance of the warehouse on a server, without access to its files."""

    def freeze(self) -> Frozen:
        raise MaintenanceRefusedError(_OWN_BACKUPS)

    def thaw(self) -> None:
        """Do nothing: nothing is ever frozen."""

    def adopt(self, frozen: Frozen) -> None:  # noqa: ARG002 - the same signature for every engine
        raise MaintenanceRefusedError(_OWN_BACKUPS)


def open_warehouse_maintenance(settings: Settings) -> WarehouseMaintenance:
    """Open the warehouse for maintenance: on a server, in the core, or while no service runs."""
    if settings.warehouse_url is None:
        return _open_embedded_maintenance(settings.data)
    return ServerMaintenance(open_for_maintenance(address_from(settings.warehouse_url)))


def _open_embedded_maintenance(data: Path) -> WarehouseMaintenance:
    path = warehouse_path(data)
    return ChdbMaintenance(ChdbConnection(path), path)


@contextmanager
def offline_pause(settings: Settings) -> Iterator[LoaderPause]:
    """Freeze the warehouse while no service runs."""
    with closing(open_warehouse_maintenance(settings)) as warehouse:
        try:
            yield LoaderPause(warehouse.freeze(), lambda: None, lambda: None)
        finally:
            warehouse.thaw()


def drop_frozen(settings: Settings) -> None:
    """Remove the leftovers of an interrupted backup."""
    shutil.rmtree(backup_drafts_path(settings.data), ignore_errors=True)
    shutil.rmtree(warehouse_path(settings.data) / FROZEN_FOLDER, ignore_errors=True)


def open_ledger_maintenance(settings: Settings) -> LedgerMaintenance:
    database = open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)
    return LedgerMaintenance(database, settings.read_s_max)


def retention(settings: Settings, parts: ControlParts) -> Retention:
    """Return the retention job. It records its last run as a fact of the installation."""

    def record(forgotten: Forgotten) -> None:
        parts.catalog.installation.put(_FORGOTTEN_FACT, msgspec.json.encode(forgotten).decode())

    return Retention(
        settings.raw_retention_days,
        lambda: closing(open_warehouse_maintenance(settings)),
        parts.clock,
        record,
        last_elsewhere=lambda: last_forgotten(parts) if is_shared(settings) else None,
    )


def last_forgotten(parts: ControlParts) -> Forgotten | None:
    text = parts.catalog.installation.get(_FORGOTTEN_FACT)
    return None if text is None else _forgotten.decode(text)


def backup_sources(
    settings: Settings, pause_loader: Callable[[], AbstractContextManager[LoaderPause]]
) -> BackupSources:
    data = settings.data
    ledger, catalog, log, key = ledger_path(data), catalog_path(data), log_path(data), master_key_path(data)

    def copy_log(target: Path) -> int:
        with open_load_ledger(settings) as ledger:
            return copy_unloaded(log, target, ledger.positions())

    def log_bytes() -> int:
        with closing(open_log_reader(settings)) as reader:
            return reader.stored_bytes()

    return BackupSources(
        pause_loader=pause_loader,
        snapshot_ledger=lambda: SqliteSnapshot(ledger),
        snapshot_catalog=lambda: SqliteSnapshot(catalog),
        copy_log=copy_log,
        master_key=key if settings.master_key is None and key.exists() else None,
        copied_bytes=lambda: bytes_in(ledger, catalog) + log_bytes(),
        frozen_bytes=lambda: bytes_in(warehouse_path(data)),
    )


def restore_steps() -> RestoreSteps:
    """Return the steps that turn an extracted backup into a data directory."""
    return RestoreSteps(KEPT_TABLES, check_restored, _build_warehouse)


def check_restored(data: Path) -> None:
    """Raise if a newer release wrote the files of a restored data directory."""
    for path, chain in ((catalog_path(data), CATALOG), (ledger_path(data), LEDGER)):
        with closing(Database(sqlite_url(path), busy_timeout_s=_BUSY_TIMEOUT_S)) as database:
            check_not_newer(database, chain)


def _build_warehouse(data: Path, frozen: Frozen) -> None:
    with closing(_open_embedded_maintenance(data)) as warehouse:
        warehouse.adopt(frozen)
