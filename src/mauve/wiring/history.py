"""Wires imports of history: the manifest in the ledger, and the warehouse."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from mauve.config import Settings
from mauve.stores.imports import ImportWarehouse
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.imports import EmbeddedImports, ServerImports
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.server.server import ServerAddress, address_from, open_for_maintenance
from mauve.wiring.databases import MAINTENANCE_STATEMENT_S, open_ledger_database
from mauve.wiring.paths import warehouse_path


@contextmanager
def open_import_ledger(settings: Settings) -> Iterator[ImportLedger]:
    database = open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)
    with closing(ImportLedger(database)) as ledger:
        yield ledger


@contextmanager
def open_import_warehouse(settings: Settings) -> Iterator[ImportWarehouse]:
    """Open the warehouse for imports: on a server, in the core, or while no service runs."""
    if settings.warehouse_url is None:
        with closing(ChdbConnection(warehouse_path(settings.data))) as connection:
            for statement in TABLES:
                connection.run(statement)
            yield EmbeddedImports(connection)
        return
    with open_server_imports(address_from(settings.warehouse_url)) as warehouse:
        yield warehouse


@contextmanager
def open_server_imports(address: ServerAddress) -> Iterator[ServerImports]:
    with closing(open_for_maintenance(address)) as server:
        yield ServerImports(server, is_replicated=address.cluster is not None)
