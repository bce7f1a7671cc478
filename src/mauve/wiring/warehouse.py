"""Wires the warehouse, its reader and its loader, for the core and for commands that run without a service."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.core.clock import Clock, SystemClock
from mauve.demo.fill import FillParts
from mauve.load.close_days import DayCloser
from mauve.load.lag import LoadLag, Progress, oldest_waiting_at
from mauve.load.lease import LoaderLease
from mauve.load.loader import Loader
from mauve.load.runner import LoadParts
from mauve.stores.clickhouse.connection import ChdbConnection
from mauve.stores.clickhouse.schema import TABLES
from mauve.stores.clickhouse.warehouse import ChdbWarehouse
from mauve.stores.clickhouse.warehouse_reader import ChdbWarehouseReader, ReadConnection
from mauve.stores.data_directory import write_private_file
from mauve.stores.localdisk.log.reader import SegmentLogReader, SegmentStreamReader
from mauve.stores.sql.catalog.catalog import sql_catalog
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger.closed_days import SqlClosedDays
from mauve.stores.sql.ledger.load_lease import SqlLeaseStore
from mauve.stores.sql.ledger.loading import SqlLoadLedger
from mauve.stores.warehouse import WarehouseReader
from mauve.wiring.databases import open_catalog_database, open_ledger_database, open_ledger_writer
from mauve.wiring.paths import loader_id_path, log_path, warehouse_path


def open_warehouse_reader(settings: Settings) -> WarehouseReader:
    """Return a reader of the warehouse, in the process that loads it. The engine is opened on first use."""
    return ChdbWarehouseReader(lambda: _read_connection(settings))


def _read_connection(settings: Settings) -> ReadConnection:
    connection = ChdbConnection(warehouse_path(settings.data))
    for statement in TABLES:  # A reader may be opened before the loader.
        connection.run(statement)
    return connection


def open_load_parts(settings: Settings) -> LoadParts:
    """Open the parts of the loader."""
    with ExitStack() as opened:
        warehouse = ChdbWarehouse(opened.enter_context(closing(ChdbConnection(warehouse_path(settings.data)))))
        ledger_database = opened.enter_context(closing(open_ledger_database(settings)))
        ledger = SqlLoadLedger(ledger_database)
        days = DayCloser(SqlClosedDays(ledger_database), warehouse)
        catalog = sql_catalog(opened.enter_context(closing(open_catalog_database(settings))))
        clock = SystemClock()
        source = open_log_reader(settings)
        loader = opened.enter_context(closing(Loader(source, ledger, warehouse, clock, days)))
        lease = opened.enter_context(closing(_lease(settings, ledger_database)))
        return LoadParts(
            loader=loader,
            lease=lease,
            days=days,
            clock=clock,
            source=source,
            ledger=ledger,
            note_first_event=catalog.apps.note_first_event,
            close=opened.pop_all().close,
        )


def _lease(settings: Settings, ledger: Database) -> LoaderLease:
    """Return the lease of this machine's loader. A ledger in the data directory is locked with it: no other can ask."""
    store = SqlLeaseStore(ledger)
    if settings.database_url is None:
        return LoaderLease(store, "this directory", renew_every_s=None)
    path = loader_id_path(settings.data)
    if not path.exists():
        write_private_file(path, secrets.token_hex(16).encode() + b"\n")
    return LoaderLease(store, path.read_text().strip())


@contextmanager
def open_load_lag(settings: Settings, loading: Progress, clock: Clock | None = None) -> Iterator[LoadLag]:
    """Open what tells whether the loader of this process is behind."""
    path = log_path(settings.data)
    with closing(open_ledger_database(settings)) as database:
        ledger = SqlLoadLedger(database)

        def oldest() -> int | None:
            streams = open_log_reader(settings).streams()
            return oldest_waiting_at(ledger, {stream: SegmentStreamReader(path, stream) for stream in streams})

        yield LoadLag(loading, oldest, clock or SystemClock(), settings.flush_s)


@contextmanager
def fill_parts(settings: Settings, control: ControlParts) -> Iterator[FillParts]:
    """Open the stores for writing demo data, while no service runs on the data directory."""
    with (
        closing(ChdbConnection(warehouse_path(settings.data))) as warehouse,
        open_ledger_writer(settings) as ledger,
        closing(open_ledger_database(settings)) as database,
    ):
        store = ChdbWarehouse(warehouse)
        days = DayCloser(SqlClosedDays(database), store)
        yield FillParts(control, store, ledger, SqlLoadLedger(database), days)


def open_log_reader(settings: Settings) -> SegmentLogReader:
    return SegmentLogReader(log_path(settings.data))
