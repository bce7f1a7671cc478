"""Repair the daily sums of events after a power cut; the engine does not sync them with the rows.

The engine detects missing or truncated sums at startup and sums the rows instead: correct but slower, and such parts
are never merged with others. Sums of the right length with wrong bytes fail every read. Both are rebuilt here from the
rows.
"""

from typing import Final

import structlog

from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError
from mauve.stores.warehouse.chdb.connection import Connection
from mauve.stores.warehouse.schema import ADD_EVENT_DAYS

_DROP: Final = "ALTER TABLE events DROP PROJECTION event_days SETTINGS mutations_sync = 1"
_REBUILD: Final = "ALTER TABLE events MATERIALIZE PROJECTION event_days"
_BROKEN: Final = """
SELECT count() FROM system.projection_parts
WHERE database = currentDatabase() AND table = 'events' AND is_broken AND active
"""
_SUM: Final = "SELECT sum(counted) FROM events"
_FROM_ROWS: Final = f"{_SUM} SETTINGS optimize_use_projections = 0"

log = structlog.get_logger()


def repair_event_days(connection: Connection) -> None:
    """Rebuild missing sums in the background; drop damaged ones first."""
    if not _can_read(connection, _SUM):  # This reads all of them, and every block has a checksum.
        if not _can_read(connection, _FROM_ROWS):
            log.error("events_unreadable", advice="a part of the warehouse is damaged: restore it from a backup")
            return  # New events can still be loaded.
        log.warning("event_sums_damaged", advice="they are rebuilt from the events")
        connection.run(_DROP)
        connection.run(ADD_EVENT_DAYS)
        connection.run(_REBUILD)
    elif connection.rows(_BROKEN) != [(0,)]:
        log.info("event_sums_missing", advice="they are rebuilt from the events")
        connection.run(_REBUILD)


def _can_read(connection: Connection, sql: str) -> bool:
    try:
        connection.rows(sql)
    except (RowsRefusedError, WarehouseUnavailableError):
        return False
    return True
