"""Which engine stands behind which seam. The only file that names one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mauve.access.keyring import Keyring
from mauve.access.vault import Vault, VaultError, new_master_key
from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.core.clock import SystemClock
from mauve.core.ids import SystemRandomness
from mauve.core.secret import Secret
from mauve.stores.catalog import Catalog
from mauve.stores.directory import alone, make_private_directory, write_private_file
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.sql.catalog import sql_catalog
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import NEWEST_REVISION, current_revision, migrate

_MASTER_KEY_FACT: Final = "master_key_id"


def catalog_path(data: Path) -> Path:
    return data / "catalog.db"


def edge_path(data: Path) -> Path:
    return data / "edge.db"


def master_key_path(data: Path) -> Path:
    return data / "master.key"


def prepare(settings: Settings) -> None:
    """Make the data directory usable: private, with a master key, with tables of this release."""
    make_private_directory(settings.data)
    with alone(settings.data, "prepare"):
        vault = _vault(settings)
        database = _database(settings)
        try:
            migrate(database)
            _check_master_key(vault, sql_catalog(database))
        finally:
            database.close()


@contextmanager
def control_parts(settings: Settings) -> Iterator[ControlParts]:
    """Open what the control plane works with, on a prepared data directory."""
    database = _database(settings)
    edge = _edge(settings)
    try:
        yield ControlParts(
            catalog=sql_catalog(database),
            edge=edge,
            vault=_vault(settings),
            clock=SystemClock(),
            randomness=SystemRandomness(),
        )
    finally:
        edge.close()
        database.close()


def keyring(settings: Settings) -> Keyring:
    """Open the published keys, on a prepared data directory."""
    return Keyring(_edge(settings))


def has_data(settings: Settings) -> bool:
    """Tell whether the data directory was ever prepared."""
    return catalog_path(settings.data).exists()


def check_vault(settings: Settings) -> None:
    """Raise unless the master key is there and is the right one."""
    vault = _vault(settings)
    database = _database(settings)
    try:
        _check_master_key(vault, sql_catalog(database))
    finally:
        database.close()


def schema_revisions(settings: Settings) -> tuple[str | None, str]:
    """Return the revision of the tables, and the one that this release wants."""
    database = _database(settings)
    try:
        return current_revision(database), NEWEST_REVISION
    finally:
        database.close()


def _database(settings: Settings) -> Database:
    # The database gives up before the request does, so that its own reason reaches the log.
    return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=settings.catalog_timeout_s * 0.75)


def _edge(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=settings.catalog_timeout_s * 0.75)


def _vault(settings: Settings) -> Vault:
    if settings.master_key is not None:
        return Vault(settings.master_key)
    path = master_key_path(settings.data)
    if not path.exists():
        if catalog_path(settings.data).exists():
            raise VaultError(f"{path} is missing: restore it from your backup or set MAUVE_MASTER_KEY")
        write_private_file(path, new_master_key().encode() + b"\n")
    return Vault(Secret(path.read_text()))


def _check_master_key(vault: Vault, catalog: Catalog) -> None:
    """Refuse a master key that cannot open what is stored; remember the one in use."""
    known = catalog.installation.fact(_MASTER_KEY_FACT)
    if known is not None and not vault.knows(known):
        raise VaultError("this is not the master key that sealed the stored secrets: restore the right one")
    if known != vault.current_key_id:
        catalog.installation.remember(_MASTER_KEY_FACT, vault.current_key_id)
