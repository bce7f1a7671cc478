"""Wires the SQL databases (catalog, ledger) and the edge to SQLite files."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from mauve.config import Settings
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ledger import LedgerWriter, LoadLedger
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.ledger.deliveries import SqlDeliveryReader
from mauve.stores.sql.ledger.loading import SqlLoadLedger
from mauve.stores.sql.ledger.writer import SqlLedgerWriter
from mauve.wiring.paths import catalog_path, edge_path, ledger_path

_LEDGER_BUSY_TIMEOUT_S: Final = 5.0
_EDGE_BUSY_TIMEOUT_S: Final = 0.4  # shorter than the timeout of publishing


def open_catalog_database(settings: Settings) -> Database:
    # The database gives up before the request does, so that its own reason reaches the log.
    return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=settings.catalog_timeout_s / 2)


def open_ledger_database(settings: Settings) -> Database:
    return Database(sqlite_url(ledger_path(settings.data)), busy_timeout_s=_LEDGER_BUSY_TIMEOUT_S)


def open_edge(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=_EDGE_BUSY_TIMEOUT_S)


@contextmanager
def open_load_ledger(settings: Settings) -> Iterator[LoadLedger]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlLoadLedger(database)


@contextmanager
def open_ledger_writer(settings: Settings) -> Iterator[LedgerWriter]:
    """Open the ledger for a program that writes directly, whether or not a service runs."""
    with closing(SqlLedgerWriter(open_ledger_database(settings))) as writer:
        yield writer


@contextmanager
def open_delivery_reader(settings: Settings) -> Iterator[DeliveryReader]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlDeliveryReader(database)
