"""Wires the SQL databases (catalog, ledger) to SQLite files or a PostgreSQL server."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from mauve.config import Settings
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.dialects import CONNECTIONS_MAX, STATEMENT_S_MAX
from mauve.stores.sql.migrate import CATALOG, LEDGER, Chain, program_name
from mauve.wiring.paths import catalog_path, ledger_path

_LEDGER_BUSY_TIMEOUT_S: Final = 5.0
IDENTITY: Final = "identity"  # the name of the fact
MAINTENANCE_STATEMENT_S: Final = 3600.0  # for work that reads or changes whole tables


def open_catalog_database(
    settings: Settings, *, statement_s: float = STATEMENT_S_MAX, connections_max: int = CONNECTIONS_MAX
) -> Database:
    # The database times out before the request, so that its own reason is logged.
    patience_s = settings.catalog_timeout_s / 2
    path = catalog_path(settings.data)
    return _open(settings, path, CATALOG, patience_s, statement_s=statement_s, connections_max=connections_max)


def open_ledger_database(
    settings: Settings, *, statement_s: float = STATEMENT_S_MAX, idle_s: float | None = None
) -> Database:
    """Open the ledger. On a server, a write transaction idle for `idle_s` ends and releases its locks."""
    path = ledger_path(settings.data)
    return _open(settings, path, LEDGER, _LEDGER_BUSY_TIMEOUT_S, statement_s=statement_s, idle_s=idle_s)


def open_lease_database(settings: Settings, idle_s: float) -> Database:
    """Open the ledger on a separate connection, so that lease renewals never wait for the pool."""
    return _open(settings, ledger_path(settings.data), LEDGER, _LEDGER_BUSY_TIMEOUT_S, idle_s=idle_s, connections_max=1)


def _open(
    settings: Settings,
    path: Path,
    chain: Chain,
    patience_s: float,
    *,
    statement_s: float = STATEMENT_S_MAX,
    idle_s: float | None = None,
    connections_max: int = CONNECTIONS_MAX,
) -> Database:
    url = sqlite_url(path) if settings.database_url is None else sa.make_url(settings.database_url.reveal())
    return Database(
        url,
        patience_s,
        schema=chain.name,
        statement_s=statement_s,
        idle_s=idle_s,
        connections_max=connections_max,
        program=program_name(chain),
    )


def stored_identity(settings: Settings) -> str | None:
    with closing(open_catalog_database(settings)) as database:
        return identity_of(database)


def identity_of(catalog: Database) -> str | None:
    """Return the identity of the installation; None if it has none yet."""
    return Catalog(catalog).installation.get(IDENTITY)


@contextmanager
def open_load_ledger(settings: Settings) -> Iterator[LoadLedger]:
    with closing(open_ledger_database(settings)) as database:
        yield LoadLedger(database)


@contextmanager
def open_ledger_writer(settings: Settings) -> Iterator[LedgerWriter]:
    """Open the ledger for a program that writes directly, whether or not the service is running."""
    with closing(LedgerWriter(open_ledger_database(settings))) as writer:
        yield writer


@contextmanager
def open_delivery_reader(settings: Settings) -> Iterator[DeliveryReader]:
    with closing(open_ledger_database(settings)) as database:
        yield DeliveryReader(database)
