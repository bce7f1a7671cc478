"""Wires `mauve move`: from the files of a stopped service to servers."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.core.events import Activity
from mauve.core.secret import Secret
from mauve.core.window import Window, today_at
from mauve.load.lag import oldest_waiting_at
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance import Progress
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.move import Comparison, Moved, Store, move
from mauve.stores import ForeignDataError, StoreUnavailableError
from mauve.stores.cancellation import deadline_at
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.catalog.schema import metadata as catalog_metadata
from mauve.stores.catalog.schema import projects
from mauve.stores.data_directory import hold, write_private_file
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.schema import metadata as ledger_metadata
from mauve.stores.sql.copy import copy_tables, count_rows, forget_progress, has_progress
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.copy import copy_warehouse, count_warehouse
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.server.schema import begin_copy, create_database, end_copy
from mauve.stores.warehouse.server.schema import check_server as check_clickhouse
from mauve.stores.warehouse.server.schema import migrate as migrate_clickhouse
from mauve.stores.warehouse.server.server import address_from, open_for_maintenance, open_for_reading
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.bootstrap import check_server, prepare_databases
from mauve.wiring.clickhouse import holds_rows, is_on_server, note_server
from mauve.wiring.cluster import check_owner, settle_owner
from mauve.wiring.databases import (
    MAINTENANCE_STATEMENT_S,
    identity_of,
    open_catalog_database,
    open_ledger_database,
    open_load_ledger,
)
from mauve.wiring.log import check_log, has_local_log, open_log_reader
from mauve.wiring.paths import catalog_path, identity_path, ledger_path, log_path, moved_path, warehouse_path
from mauve.wiring.warehouse import open_load_parts

_EARLIEST: Final = date(1970, 1, 1)
_JOURNAL_PATIENCE_S: Final = 5.0
_COMPARISON_S_MAX: Final = 3600.0
_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _ServerMove:
    """The data that moves to one server."""

    stores: Sequence[Store]
    reads: dict[str, Callable[[Any, str, Window], object]]
    before: Any  # the reader of the files
    after: Any  # the reader of the server
    switch: Callable[[], None]


def move_to_servers(settings: Settings, progress: Progress) -> Moved:
    """Load the local log, copy local stores to the servers, compare them, and retire the files."""
    moves_database = settings.database_url is not None and catalog_path(settings.data).exists()
    if not (moves_database or _moves_warehouse(settings) or _moves_log(settings)):
        raise MaintenanceRefusedError(f"{settings.data} has nothing left to move to these servers: check --data")
    source = replace(settings, stream_url=None, database_url=None if moves_database else settings.database_url)
    check_log(settings)
    with hold(settings.data), ExitStack() as opened:
        prepare_databases(source)  # both sides at the same revision
        catalog = opened.enter_context(closing(_catalog(source)))
        facts = Catalog(catalog).installation
        check_owner(source, facts)
        if has_local_log(settings.data):
            progress.begin("loading the local log", 1)
            _drain_log(source if is_on_server(facts) else replace(source, warehouse_url=None))
            progress.add(1)
        moves: list[_ServerMove] = []
        if moves_database:
            moves.append(opened.enter_context(_database_move(source, settings, catalog)))
        moves_warehouse = _moves_warehouse(settings)
        if moves_warehouse and settings.warehouse_url is not None:
            identity = identity_of(catalog) or ""
            moves.append(opened.enter_context(_warehouse_move(settings.data, settings.warehouse_url, identity)))
        every_project = _projects(catalog)

        def switch() -> None:
            for move_ in moves:
                move_.switch()
            with closing(_catalog(settings)) as used:
                installation = Catalog(used).installation
                if moves_warehouse:
                    note_server(installation)
                settle_owner(settings, installation)
            if _moves_log(settings):  # Last: otherwise, the ledger would report its files lost.
                log_path(settings.data).rename(moved_path(log_path(settings.data)))

        return move(
            [store for move_ in moves for store in move_.stores],
            lambda: [each for move_ in moves for each in _comparisons(move_, every_project)],
            switch,
            progress,
        )


def _moves_warehouse(settings: Settings) -> bool:
    return settings.warehouse_url is not None and holds_rows(warehouse_path(settings.data))


def _moves_log(settings: Settings) -> bool:
    return settings.stream_url is not None and has_local_log(settings.data)


def _drain_log(settings: Settings) -> None:
    """Load every record of the local log, or refuse to move: the service would never read it again."""
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
    try:
        with closing(loading):
            loading.load_pending()
        with open_load_ledger(settings) as ledger, closing(open_log_reader(settings)) as log:
            is_empty = oldest_waiting_at(ledger, log) is None
        reason = "" if is_empty else "some records are still waiting"
    except (StoreUnavailableError, WarehouseUnavailableError, OSError) as error:
        reason = str(error)
    if reason:
        raise MaintenanceRefusedError(
            f"the local log could not be loaded completely ({reason}): start the service with its previous settings, "
            "wait until 'mauve doctor' shows that everything is loaded, stop it, and run this again"
        )


def _projects(catalog: Database) -> list[str]:
    with catalog.reading() as tx:
        return list(tx.execute(sa.select(projects.c.public_id).order_by(projects.c.public_id)).scalars())


def _comparisons(move_: _ServerMove, every_project: Sequence[str]) -> list[Comparison]:
    """Compare every project's metrics over all days."""
    window = Window(_EARLIEST, today_at(SystemClock().now_ms()) + timedelta(days=1))
    return [
        Comparison(
            f"{metric} of {project}",
            partial(_read_patiently, read, move_.before, project, window),
            partial(_read_patiently, read, move_.after, project, window),
        )
        for project, (metric, read) in product(every_project, move_.reads.items())
    ]


def _read_patiently(read: Callable[[Any, str, Window], object], reader: object, project: str, window: Window) -> object:
    with deadline_at(time.monotonic() + _COMPARISON_S_MAX):
        return read(reader, project, window)


def _catalog(settings: Settings) -> Database:
    return open_catalog_database(settings, statement_s=MAINTENANCE_STATEMENT_S)


def _ledger(settings: Settings) -> Database:
    return open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)


_MONEY: Final = {
    "revenue": lambda reader, project, window: list(reader.day_totals([project], window, True)),  # noqa: FBT003
    "volume": lambda reader, project, window: list(reader.day_totals([project], window, False)),  # noqa: FBT003
    "mrr": lambda reader, project, _window: reader.current_mrr([project]),
    "mrr_history": lambda reader, project, window: list(reader.mrr_changes_until_now([project], window)),
}


@contextmanager
def _database_move(source: Settings, target: Settings, catalog: Database) -> Iterator[_ServerMove]:
    with (
        closing(_ledger(source)) as ledger,
        closing(_catalog(target)) as new_catalog,
        closing(_ledger(target)) as new_ledger,
    ):
        check_server(new_catalog)
        _check_target(catalog, new_catalog, new_ledger)
        migrate(new_catalog, CATALOG)
        migrate(new_ledger, LEDGER)
        yield _ServerMove(
            [
                _store("catalog", catalog, new_catalog, catalog_metadata.sorted_tables),
                _store("ledger", ledger, new_ledger, ledger_metadata.sorted_tables),
            ],
            _MONEY,
            LedgerReader(ledger),
            LedgerReader(new_ledger),
            lambda: _switch_databases(target.data, (catalog, ledger), (new_catalog, new_ledger)),
        )


def _check_target(catalog: Database, new_catalog: Database, new_ledger: Database) -> None:
    """Accept an empty database, or one partly filled by an interrupted move of the same installation."""
    if current_revision(new_catalog, CATALOG) is None:
        return
    known = identity_of(new_catalog)
    is_begun = has_progress(new_catalog) or has_progress(new_ledger)
    if known is not None and not (is_begun and known == identity_of(catalog)):
        raise ForeignDataError("the database at MAUVE_DATABASE_URL already holds an installation: name an empty one")


def _store(name: str, source: Database, target: Database, tables: Sequence[sa.Table]) -> Store:
    return Store(
        name,
        partial(count_rows, source, tables),
        partial(count_rows, target, tables),
        partial(copy_tables, source, target, tables),
    )


def _switch_databases(data: Path, old: tuple[Database, Database], new: tuple[Database, Database]) -> None:
    """Retire the files: until then, the service starts on them. The catalog comes first because it decides that."""
    identity = identity_of(new[0]) or ""
    write_private_file(identity_path(data), identity.encode() + b"\n")
    for path, database in zip((catalog_path(data), ledger_path(data)), old, strict=True):
        database.empty_journal(_JOURNAL_PATIENCE_S)
        database.close()
        path.rename(moved_path(path))
    for database in new:
        forget_progress(database)


_EVENTS: Final = {
    "event_names": lambda reader, project, window: reader.event_names(project, window, _NAMES_MAX),
    "users": lambda reader, project, window: reader.users([project], list(Activity), window, None),
    "dau": lambda reader, project, window: reader.users_by_day([project], Activity.ACTIVE, window),
    "signups": lambda reader, project, window: reader.users_by_day([project], Activity.SIGNUP, window),
}


@contextmanager
def _warehouse_move(data: Path, url: Secret, identity: str) -> Iterator[_ServerMove]:
    address, path = address_from(url), warehouse_path(data)
    create_database(address)
    check_clickhouse(address)
    migrate_clickhouse(address, identity)
    begin_copy(address)
    with (
        closing(ChdbConnection(path)) as source,
        closing(open_for_maintenance(address)) as target,
        closing(WarehouseReader(lambda: ChdbConnection(path))) as before,
        closing(WarehouseReader(lambda: open_for_reading(address, _COMPARISON_S_MAX))) as after,
    ):
        for statement in TABLES:  # It may never have been opened.
            source.run(statement)

        def switch() -> None:
            path.rename(moved_path(path))  # Its files stay open until the command ends.
            end_copy(address)

        store = Store(
            "warehouse",
            partial(count_warehouse, source),
            partial(count_warehouse, target),
            partial(copy_warehouse, source, target),
        )
        yield _ServerMove([store], _EVENTS, before, after, switch)
