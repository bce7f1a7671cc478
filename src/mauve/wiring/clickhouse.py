"""Wires the warehouse on ClickHouse servers. Light: processes that never read or load import it, too."""

from pathlib import Path

from mauve.config import Settings
from mauve.stores import ForeignDataError
from mauve.stores.clickhouse.server import address_from
from mauve.stores.clickhouse.server_schema import check_owner, check_server, migrate
from mauve.wiring.paths import warehouse_path


def prepare_warehouse(settings: Settings, identity: str) -> None:
    """Check the server, and give it the tables of this release; refuse the data of another installation."""
    if settings.warehouse_url is None:
        return
    address = address_from(settings.warehouse_url)
    check_server(address)
    if holds_rows(warehouse_path(settings.data)):
        raise ForeignDataError(
            f"{settings.data} holds events in an embedded warehouse and MAUVE_WAREHOUSE_URL is set: "
            "move them with 'mauve move', or choose another --data"
        )
    migrate(address, identity)


def check_warehouse_server(settings: Settings) -> None:
    """Raise unless the server of the warehouse can be used."""
    if settings.warehouse_url is not None:
        check_server(address_from(settings.warehouse_url))


def has_warehouse(settings: Settings, identity: str | None) -> bool:
    """Return whether there are tables on the server; raise if they belong to another installation."""
    return settings.warehouse_url is None or check_owner(address_from(settings.warehouse_url), identity)


def warehouse_place(settings: Settings) -> str:
    """Say where the warehouse is."""
    if settings.warehouse_url is None:
        return "in files"
    address = address_from(settings.warehouse_url)
    copies = "" if address.cluster is None else f", on cluster {address.cluster}"
    return f"on ClickHouse at {address.host}{copies}"


def holds_rows(warehouse: Path) -> bool:
    """Return whether an embedded warehouse may hold rows, without opening the engine: each part states its number."""
    return any(part.read_text().strip() != "0" for part in warehouse.glob("store/*/*/*/count.txt"))
