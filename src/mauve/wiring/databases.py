"""The SQL databases and the edge, on one machine."""

from typing import Final

from mauve.config import Settings
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.sql.database import Database, sqlite_url
from mauve.wiring.paths import catalog_path, edge_path, ledger_path

_LEDGER_BUSY_TIMEOUT_S: Final = 5.0
_EDGE_BUSY_TIMEOUT_S: Final = 0.4  # shorter than the patience of whoever publishes


def open_catalog_database(settings: Settings) -> Database:
    # The database gives up before the request does, so that its own reason reaches the log.
    return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=settings.catalog_timeout_s / 2)


def open_ledger_database(settings: Settings) -> Database:
    return Database(sqlite_url(ledger_path(settings.data)), busy_timeout_s=_LEDGER_BUSY_TIMEOUT_S)


def open_edge(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=_EDGE_BUSY_TIMEOUT_S)
