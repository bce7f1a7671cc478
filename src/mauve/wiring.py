"""Which engine stands behind which seam. The only file that names one."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mauve.access.keyring import Keyring
from mauve.access.vault import Vault, VaultError, new_master_key
from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.control.publish import Publisher
from mauve.core.clock import Clock, SystemClock
from mauve.core.ids import SystemRandomness
from mauve.core.secret import Secret
from mauve.stores.catalog import Catalog
from mauve.stores.directory import alone, make_private_directory, write_private_file
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.sql.catalog import sql_catalog
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import NEWEST_REVISION, current_revision, migrate

_MASTER_KEY_FACT: Final = "master_key_id"
_EDGE_BUSY_TIMEOUT_S: Final = 0.4  # shorter than the patience of whoever publishes


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
        with closing(_database(settings)) as database:
            migrate(database)
            catalog = sql_catalog(database)
            _check_master_key(vault, catalog)
            if catalog.installation.fact(_MASTER_KEY_FACT) != vault.current_key_id:
                catalog.installation.remember(_MASTER_KEY_FACT, vault.current_key_id)


@contextmanager
def control_parts(settings: Settings, clock: Clock | None = None) -> Iterator[ControlParts]:
    """Open what the control plane works with, on a prepared data directory."""
    clock = clock or SystemClock()
    with closing(_database(settings)) as database, closing(_edge(settings)) as edge:
        catalog = sql_catalog(database)
        with closing(Publisher(catalog, edge, clock)) as publisher:
            yield ControlParts(catalog, publisher, _vault(settings), clock, SystemRandomness())


def keyring(settings: Settings) -> Keyring:
    """Open the published keys, on a prepared data directory."""
    return Keyring(_edge(settings))


def has_data(settings: Settings) -> bool:
    """Tell whether the data directory was ever prepared."""
    return catalog_path(settings.data).exists()


def check_vault(settings: Settings) -> None:
    """Raise unless the master key is there and is the right one."""
    with closing(_database(settings)) as database:
        _check_master_key(_vault(settings), sql_catalog(database))


def schema_revisions(settings: Settings) -> tuple[str | None, str]:
    """Return the revision of the tables, and the one that this release wants."""
    with closing(_database(settings)) as database:
        return current_revision(database), NEWEST_REVISION


def _database(settings: Settings) -> Database:
    # The database gives up before the request does, so that its own reason reaches the log.
    return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=settings.catalog_timeout_s / 2)


def _edge(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=_EDGE_BUSY_TIMEOUT_S)


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
    """Refuse master keys that cannot open everything that is stored."""
    known = catalog.installation.fact(_MASTER_KEY_FACT)
    if known is not None and not vault.knows(known):
        raise VaultError("this is not the master key of this data: restore the right one")
    if not all(vault.can_open(sealed) for sealed in catalog.webhook_secrets.all_sealed()):
        raise VaultError(
            "some webhook secrets were sealed with an older master key: add it back behind the new one"
        )
