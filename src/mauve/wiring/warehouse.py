"""Wires the warehouse, its reader and its loader, for the core and for commands that run without a service."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from mauve.config import Settings
from mauve.control import ControlParts
from mauve.core.clock import Clock, SystemClock
from mauve.demo.fill import FillParts
from mauve.load.lag import LoadLag, Progress, oldest_waiting_at
from mauve.load.lease import TTL_S, LoaderLease
from mauve.load.loader import DayCloser, Loader
from mauve.load.runner import LoadParts
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LeaseStore, LoadLedger
from mauve.stores.log import LogReader
from mauve.stores.sql.database import Database
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.server.server import address_from, open_for_loading, open_for_reading
from mauve.stores.warehouse.server.warehouse import ServerWarehouse
from mauve.stores.warehouse.warehouse import ChdbWarehouse, ClickHouseWarehouse
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.cluster import machine_of
from mauve.wiring.databases import (
    open_catalog_database,
    open_lease_database,
    open_ledger_database,
    open_ledger_writer,
)
from mauve.wiring.log import LOOK_S_MAX, open_log_reader
from mauve.wiring.maintenance import open_embedded_warehouse
from mauve.wiring.paths import warehouse_path


def open_warehouse_reader(settings: Settings) -> WarehouseReader:
    """Return a warehouse reader, on a server or in the process that loads. It opens on first use."""
    if settings.warehouse_url is None:
        return WarehouseReader(lambda: open_embedded_warehouse(settings))
    address = address_from(settings.warehouse_url)
    return WarehouseReader(lambda: open_for_reading(address, settings.read_s_max))


def ping_warehouse(settings: Settings) -> None:
    """Raise unless the warehouse server answers soon. Skip an embedded warehouse."""
    if settings.warehouse_url is not None:
        with closing(open_for_reading(address_from(settings.warehouse_url), LOOK_S_MAX)) as connection:
            connection.rows("SELECT 1")


@contextmanager
def open_warehouse(settings: Settings) -> Iterator[ClickHouseWarehouse]:
    if settings.warehouse_url is None:
        with closing(ChdbConnection(warehouse_path(settings.data))) as embedded:
            yield ChdbWarehouse(embedded)
        return
    address = address_from(settings.warehouse_url)
    with closing(open_for_loading(address)) as connection:
        yield ServerWarehouse(connection, is_replicated=address.cluster is not None)


def open_load_parts(settings: Settings) -> LoadParts:
    with ExitStack() as opened:
        warehouse = opened.enter_context(open_warehouse(settings))
        # A loader stuck in a transaction must not block the lease for longer than it lasts.
        ledger_database = opened.enter_context(closing(open_ledger_database(settings, idle_s=TTL_S)))
        lease_database = opened.enter_context(closing(open_lease_database(settings, TTL_S)))
        ledger = LoadLedger(ledger_database)
        days = DayCloser(ClosedDays(ledger_database), warehouse)
        catalog = Catalog(opened.enter_context(closing(open_catalog_database(settings))))
        clock = SystemClock()
        source = opened.enter_context(closing(open_log_reader(settings)))
        loader = opened.enter_context(closing(Loader(source, ledger, warehouse, clock, days)))
        lease = opened.enter_context(closing(_lease(settings, lease_database)))
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
    """Return this machine's loader lease. The lock on a local data directory rules out other loaders."""
    store = LeaseStore(ledger)
    if settings.database_url is None:
        return LoaderLease(store, "this directory", renew_every_s=None)
    return LoaderLease(store, machine_of(settings))


@contextmanager
def open_load_lag(settings: Settings, loading: Progress, clock: Clock | None = None) -> Iterator[LoadLag]:
    """Open the lag check of this process's loader."""
    with closing(open_ledger_database(settings)) as database, ExitStack() as opened:
        ledger = LoadLedger(database)
        source: LogReader | None = None

        def oldest() -> int | None:
            nonlocal source
            if source is None:  # opened on first use: a server may be down at startup
                source = opened.enter_context(closing(open_log_reader(settings, LOOK_S_MAX)))
            return oldest_waiting_at(ledger, source)

        yield LoadLag(loading, oldest, clock or SystemClock(), settings.flush_s)


@contextmanager
def fill_parts(settings: Settings, control: ControlParts) -> Iterator[FillParts]:
    """Open the stores for writing demo data. No service may be running on the data directory."""
    with (
        open_warehouse(settings) as store,
        open_ledger_writer(settings) as ledger,
        closing(open_ledger_database(settings)) as database,
    ):
        days = DayCloser(ClosedDays(database), store)
        yield FillParts(control, store, ledger, LoadLedger(database), days)
