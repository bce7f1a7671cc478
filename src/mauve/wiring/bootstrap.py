"""Wires an installation: migrate its tables, check its master key and identity, open its control plane."""

import hmac
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Final

from mauve.access.uses import CredentialUses
from mauve.access.vault import Vault, VaultError, new_master_key
from mauve.config import Settings
from mauve.control import ControlParts
from mauve.core.clock import Clock, SystemClock
from mauve.core.ids import SystemRandomness
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.catalog.catalog import Catalog, is_restored_copy, mark_original
from mauve.stores.data_directory import exclusive_lock, make_private_directory, write_private_file
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG, LEDGER, check_not_newer, current_revision, newest_revision
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.stores.warehouse.server.schema import SCHEMA_VERSION
from mauve.wiring.clickhouse import prepare_warehouse
from mauve.wiring.cluster import check_owner, has_servers, is_shared, settle_owner
from mauve.wiring.databases import (
    IDENTITY,
    MAINTENANCE_STATEMENT_S,
    open_catalog_database,
    open_ledger_database,
)
from mauve.wiring.log import prepare_log
from mauve.wiring.paths import catalog_path, identity_path, ledger_path, master_key_path, moved_path, served_path
from mauve.wiring.upgrade import upgrade

_MASTER_KEY_ID: Final = "master_key_id"
RESTORED_COPY: Final = (
    "the database at MAUVE_DATABASE_URL was restored or copied and is not reconciled with ClickHouse and NATS yet: "
    "stop every service and run 'mauve restore --servers', which is safe to repeat"
)


@contextmanager
def control_parts(settings: Settings, clock: Clock | None = None) -> Iterator[ControlParts]:
    """Open the parts of the control plane, on a prepared data directory."""
    with closing(open_catalog_database(settings)) as database:
        catalog = Catalog(database)
        yield ControlParts(
            catalog=catalog,
            vault=open_vault(settings),
            clock=clock or SystemClock(),
            randomness=SystemRandomness(),
            uses=CredentialUses(catalog.tokens, catalog.keys),
            quotas=settings.quotas,
        )


def prepare(settings: Settings, *, needs_every_server: bool = True, may_be_copy: bool = False) -> None:
    """Make the data directory private, give it a master key, and migrate its tables to this release.

    Create or check what the installation has on servers; refuse servers that are unsafe or cannot be reached. Without
    `needs_every_server`, those for events may be down. With `may_be_copy`, the database may be a restored copy that is
    not reconciled yet.
    """
    identity, is_new = _prepare_databases(settings)
    try:
        with closing(open_catalog_database(settings)) as database:
            if not may_be_copy:
                _refuse_restored_copy(settings, database)
            installation = Catalog(database).installation
            check_owner(settings, installation)
            # The warehouse first: if it has to be moved, nothing else may have changed.
            with nullcontext() if needs_every_server else suppress(UnsupportedServerError):
                prepare_warehouse(settings, identity, installation)
            if needs_every_server or settings.stream_url is None:
                prepare_log(settings, identity, installation)
            if needs_every_server:
                settle_owner(settings, installation)
    except BaseException:
        if is_new:
            _remove_databases(settings)  # A refused or interrupted start must leave nothing to move.
        raise


def prepare_unless_down(settings: Settings) -> str | None:
    """Prepare the installation; if this directory has served it before, return which server is down, if any."""
    try:
        prepare(settings)
    except (StoreUnavailableError, UnsupportedServerError) as error:
        if not _is_down(error) or not _has_served(settings):
            raise
        return str(error)
    if has_servers(settings) and not _has_served(settings):
        write_private_file(served_path(settings.data), _served_note(settings))
    return None


def _is_down(error: BaseException | None) -> bool:
    """Return whether an engine did not answer. Other errors do not go away by waiting."""
    if error is None or isinstance(error, StoreUnavailableError | WarehouseUnavailableError):
        return error is not None
    return _is_down(error.__cause__)


def _has_served(settings: Settings) -> bool:
    path = served_path(settings.data)
    return path.exists() and path.read_bytes() == _served_note(settings)


def _served_note(settings: Settings) -> bytes:
    """Return a digest of the servers, with their passwords, and of the tables on them.

    It is keyed, so no password can be guessed from it. A new release or another server must start with all servers up.
    """
    urls = (settings.database_url, settings.warehouse_url, settings.stream_url)
    versions = (newest_revision(CATALOG), newest_revision(LEDGER), str(SCHEMA_VERSION))
    noted = "\n".join("" if url is None else url.reveal() for url in urls) + "\n".join(versions)
    key = "" if settings.master_key is None else settings.master_key.reveal()
    return hmac.digest(key.encode(), noted.encode(), "sha256").hex().encode() + b"\n"


def _refuse_restored_copy(settings: Settings, catalog: Database) -> None:
    """Refuse a restored database until it is reconciled with the other servers."""
    if is_shared(settings) and is_restored_copy(catalog):
        raise ForeignDataError(RESTORED_COPY)
    mark_original(catalog, is_renewed=False)


def is_copy(settings: Settings) -> bool:
    """Return whether the database was restored from a dump and is not reconciled yet."""
    with closing(open_catalog_database(settings)) as database:
        return is_restored_copy(database)


def prepare_databases(settings: Settings) -> str:
    """Migrate catalog and ledger, check the master key, and return the identity of the installation."""
    identity, _ = _prepare_databases(settings)
    return identity


def _prepare_databases(settings: Settings) -> tuple[str, bool]:
    """Also return whether this created them as files."""
    make_private_directory(settings.data)
    with exclusive_lock(settings.data, "prepare"):
        _refuse_without_database(settings)
        files = (catalog_path(settings.data), ledger_path(settings.data))
        is_new = settings.database_url is None and not any(path.exists() for path in files)
        try:
            return _migrated(settings), is_new
        except BaseException:
            if is_new:
                _remove_databases(settings)
            raise


def _migrated(settings: Settings) -> str:
    vault = open_vault(settings)
    with (
        closing(open_catalog_database(settings, statement_s=MAINTENANCE_STATEMENT_S)) as database,
        closing(open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)) as ledger,
    ):
        if settings.database_url is not None:
            check_server(database)
            _refuse_to_leave_data_behind(settings, current_revision(database, CATALOG))
        upgrade(settings, database, ledger)
        catalog = Catalog(database)
        check_master_key(vault, catalog)
        if catalog.installation.get(_MASTER_KEY_ID) != vault.current_key_id:
            catalog.installation.put(_MASTER_KEY_ID, vault.current_key_id)
        return _check_identity(settings, catalog)


def _remove_databases(settings: Settings) -> None:
    for path in (catalog_path(settings.data), ledger_path(settings.data)):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    identity_path(settings.data).unlink(missing_ok=True)


def _refuse_without_database(settings: Settings) -> None:
    """Refuse a directory whose catalog is on a server, if no server is named."""
    catalog = catalog_path(settings.data)
    was_on_server = identity_path(settings.data).exists() or moved_path(catalog).exists()
    if settings.database_url is None and not catalog.exists() and was_on_server:
        raise ForeignDataError(
            f"the catalog and ledger of {settings.data} are on PostgreSQL: "
            "set MAUVE_DATABASE_URL to their database again, or choose another --data"
        )


def check_database_server(settings: Settings) -> None:
    """Raise unless the PostgreSQL server, if any, is usable."""
    if settings.database_url is not None:
        with closing(open_catalog_database(settings)) as database:
            check_server(database)


def check_server(database: Database) -> None:
    """Raise unless the PostgreSQL server is usable."""
    try:
        database.check_server()
    except StoreUnavailableError as error:
        advice = "check that it is running, and check MAUVE_DATABASE_URL (host, port, user, password, database)"
        raise UnsupportedServerError(f"PostgreSQL at MAUVE_DATABASE_URL cannot be used: {error}; {advice}") from error
    except UnsupportedServerError as error:
        raise UnsupportedServerError(f"PostgreSQL at MAUVE_DATABASE_URL cannot be used: {error}") from error


def _refuse_to_leave_data_behind(settings: Settings, revision: str | None) -> None:
    if revision is not None:
        return
    if catalog_path(settings.data).exists():
        raise ForeignDataError(
            f"{settings.data} holds an installation on SQLite and MAUVE_DATABASE_URL names an empty database: "
            "move the data with 'mauve move', or choose another --data"
        )
    if identity_path(settings.data).exists():
        raise ForeignDataError(
            f"{settings.data} belongs to an installation and MAUVE_DATABASE_URL names an empty database: "
            "name the database of this installation, or choose another --data"
        )


def _check_identity(settings: Settings, catalog: Catalog) -> str:
    """Return the identity, creating it if needed; refuse a data directory of another installation."""
    identity = catalog.installation.create(IDENTITY, secrets.token_hex(16))
    path = identity_path(settings.data)
    if not path.exists():
        write_private_file(path, identity.encode() + b"\n")
    elif path.read_text().strip() != identity:
        raise ForeignDataError(
            f"{settings.data} and its database belong to different installations: correct --data or MAUVE_DATABASE_URL"
        )
    return identity


def check_vault(settings: Settings) -> None:
    with closing(open_catalog_database(settings)) as database:
        check_master_key(open_vault(settings), Catalog(database))


def schema_revisions(settings: Settings) -> tuple[str | None, str]:
    """Return the catalog's schema revision, and the one this release needs.

    Raise if a server has tables of an incompatible newer release.
    """
    with closing(open_catalog_database(settings)) as database:
        find = check_not_newer if database.is_server else current_revision
        return find(database, CATALOG), newest_revision(CATALOG)


def open_vault(settings: Settings) -> Vault:
    if settings.master_key is not None:
        return Vault(settings.master_key)
    path = master_key_path(settings.data)
    if not path.exists():
        if catalog_path(settings.data).exists():
            raise VaultError(f"{path} is missing: restore it from your backup or set MAUVE_MASTER_KEY")
        write_private_file(path, new_master_key().encode() + b"\n")
    return Vault(Secret(path.read_text()))


def check_master_key(vault: Vault, catalog: Catalog) -> None:
    """Raise if the master keys cannot open every stored secret."""
    known = catalog.installation.get(_MASTER_KEY_ID)
    if known is not None and not vault.knows(known):
        raise VaultError(
            "this master key does not match the data: "
            "set MAUVE_MASTER_KEY to the right one, or unset it and restore the file master.key"
        )
    if not all(vault.can_open(sealed) for sealed in catalog.webhook_secrets.all_sealed()):
        raise VaultError(
            "some webhook secrets were sealed with an older master key: "
            "add it again after the new one, in MAUVE_MASTER_KEY or the file master.key"
        )
