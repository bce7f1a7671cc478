"""Wires exports: events from the warehouse, and the ledger directly, in any process."""

from mauve.config import Settings
from mauve.stores.export import EventExport
from mauve.stores.ledger.export import LedgerExport
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.export import ClickHouseEventExport
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.server.server import address_from, open_for_maintenance
from mauve.wiring.databases import MAINTENANCE_STATEMENT_S, open_ledger_database
from mauve.wiring.paths import warehouse_path


def open_event_export(settings: Settings) -> EventExport:
    """Open the warehouse for an export: on a server, in the core, or while no service runs."""
    if settings.warehouse_url is not None:
        return ClickHouseEventExport(open_for_maintenance(address_from(settings.warehouse_url)))
    connection = ChdbConnection(warehouse_path(settings.data))
    for statement in TABLES:  # It may open before the loader does.
        connection.run(statement)
    return ClickHouseEventExport(connection)


def open_ledger_export(settings: Settings) -> LedgerExport:
    return LedgerExport(open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S))
