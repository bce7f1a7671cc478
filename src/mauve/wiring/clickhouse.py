"""Wires the warehouse on ClickHouse servers. Light: processes that never read or load import it, too."""

from pathlib import Path

from mauve.config import Settings
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError
from mauve.stores.clickhouse.server import address_from
from mauve.stores.clickhouse.server_schema import check_server, migrate
from mauve.wiring.paths import warehouse_path


def prepare_warehouse(settings: Settings, url: Secret, identity: str) -> None:
    """Check the server, and give it the tables of this release; refuse the data of another installation."""
    address = address_from(url)
    check_server(address)
    if holds_rows(warehouse_path(settings.data)):
        raise ForeignDataError(
            f"{settings.data} holds events in an embedded warehouse and MAUVE_WAREHOUSE_URL is set: "
            "move them with 'mauve move', or choose another --data"
        )
    migrate(address, identity)


def holds_rows(warehouse: Path) -> bool:
    """Return whether an embedded warehouse may hold rows, without opening the engine: each part states its number."""
    return any(part.read_text().strip() != "0" for part in warehouse.glob("store/*/*/*/count.txt"))
