"""Wires the warehouse on ClickHouse servers. Kept light: processes that never read or load also import it."""

from pathlib import Path
from typing import Final

from mauve.config import Settings
from mauve.stores import ForeignDataError
from mauve.stores.catalog.catalog import Installation
from mauve.stores.warehouse.server.schema import check_owner, check_server, create_database, migrate
from mauve.stores.warehouse.server.server import address_from
from mauve.wiring.paths import warehouse_path

_ON_SERVER: Final = "warehouse_on_server"


def prepare_warehouse(settings: Settings, identity: str, installation: Installation) -> None:
    """Check the server and migrate its tables to this release; refuse the data of another installation.

    The catalog records that there is a server: without its address, later events would go to an empty warehouse.
    """
    is_known = is_on_server(installation)
    if settings.warehouse_url is None:
        if is_known:
            raise ForeignDataError(
                "the events of this installation are on ClickHouse: "
                "set MAUVE_WAREHOUSE_URL to its server again, or choose another installation"
            )
        return
    address = address_from(settings.warehouse_url)
    if not is_known:
        create_database(address)
    check_server(address)
    if holds_rows(warehouse_path(settings.data)):
        raise ForeignDataError(
            f"{settings.data} holds events in an embedded warehouse and MAUVE_WAREHOUSE_URL is set: "
            "move them with 'mauve move', or choose another --data"
        )
    migrate(address, identity)
    if not is_known:
        note_server(installation)


def is_on_server(installation: Installation) -> bool:
    return installation.get(_ON_SERVER) is not None


def note_server(installation: Installation) -> None:
    """Record that the warehouse is on a server, so that no embedded one replaces it."""
    installation.put(_ON_SERVER, "yes")


def check_warehouse_server(settings: Settings) -> None:
    """Raise unless the warehouse server is usable."""
    if settings.warehouse_url is not None:
        check_server(address_from(settings.warehouse_url))


def has_warehouse(settings: Settings, identity: str | None) -> bool:
    """Return whether there are tables on the server; raise if they belong to another installation."""
    return settings.warehouse_url is None or check_owner(address_from(settings.warehouse_url), identity)


def warehouse_place(settings: Settings) -> str:
    """Describe the location of the warehouse."""
    if settings.warehouse_url is None:
        return "in files"
    address = address_from(settings.warehouse_url)
    copies = "" if address.cluster is None else f", on cluster {address.cluster}"
    return f"on ClickHouse at {address.host}{copies}"


def holds_rows(warehouse: Path) -> bool:
    """Return whether an embedded warehouse may hold rows, without opening the engine: parts store their row counts."""
    return any(part.read_text().strip() != "0" for part in warehouse.glob("store/*/*/*/count.txt"))
