"""Prepare the warehouse on a server: check the server, migrate the tables, check their owner."""

import re
from contextlib import closing
from dataclasses import replace
from typing import Final

import structlog

from mauve.stores import ForeignDataError, NewerSchemaError, UnsupportedServerError
from mauve.stores.warehouse import Connection, RowsRefusedError, WarehouseUnavailableError
from mauve.stores.warehouse.schema import KEPT_TABLES, kept_tables
from mauve.stores.warehouse.server.server import ServerAddress, open_for_loading, open_for_maintenance

SCHEMA_VERSION: Final = 1
"""Increment it whenever the tables change. Machines may migrate concurrently: every statement is safe to repeat."""
COMPATIBLE_FROM: Final = 1
"""The oldest schema version that is compatible with these tables."""

_VERSION_MIN: Final = (24, 8)
# The first installation to create the table owns the database: its identity is in the table's comment.
_CREATE_INSTALLATION: Final = """
CREATE TABLE IF NOT EXISTS mauve_installation{on_cluster}
(schema_version UInt32, migrated_at DateTime, compatible_from UInt32 DEFAULT schema_version)
ENGINE = {replicated}MergeTree ORDER BY schema_version COMMENT '{identity}'
"""
_VERSIONS: Final = "SELECT max(schema_version), max(compatible_from) FROM mauve_installation"
_INSTALLATION: Final = "mauve_installation"
_COPYING: Final = "mauve_copying"
_TABLES: Final = "SELECT name, comment, engine FROM system.tables WHERE database = currentDatabase() LIMIT 10000"
_ALWAYS_THERE: Final = "system"
_NAME: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)
_DATABASE: Final = "SELECT name FROM system.databases WHERE name = {name:String}"
_SHARDS: Final = "SELECT count(), max(shard_num) FROM system.clusters WHERE cluster = {cluster:String}"

log = structlog.get_logger()


def create_database(address: ServerAddress) -> None:
    """Create the database, on every server of a cluster, if it is missing and the user may do so."""
    elsewhere = replace(address, database=_ALWAYS_THERE)
    check_server(elsewhere)
    try:
        with closing(open_for_maintenance(elsewhere)) as connection:
            if connection.read(_DATABASE, {"name": address.database}) or not _NAME.fullmatch(address.database):
                return
            connection.run(f"CREATE DATABASE IF NOT EXISTS `{address.database}`{address.layout.on_cluster}")
    except (WarehouseUnavailableError, RowsRefusedError, UnsupportedServerError) as error:
        # The caller checks whether it exists: a database that the user may not see is not listed.
        log.warning("database_not_created", store="warehouse", name=address.database, reason=str(error))
    else:
        log.info("database_created", store="warehouse", name=address.database)


def check_server(address: ServerAddress) -> None:
    """Raise unless the server is usable."""
    try:
        with closing(open_for_loading(address)) as connection:
            _check_version(connection)
            if address.cluster is not None:
                _check_cluster(connection, address.cluster)
    except (WarehouseUnavailableError, RowsRefusedError, UnsupportedServerError) as error:
        raise _unusable(error) from error


def migrate(address: ServerAddress, identity: str) -> None:
    """Create or migrate the tables. Several processes may do so concurrently."""
    try:
        with closing(open_for_maintenance(address)) as connection:
            _adopt(connection, address, identity)
            ((version, _),) = connection.rows(_VERSIONS)
            if version < SCHEMA_VERSION:
                if version:
                    log.info("migrating", store="warehouse", from_revision=version, to_revision=SCHEMA_VERSION)
                for statement in kept_tables(address.layout):
                    connection.run(statement)
                connection.run(f"INSERT INTO mauve_installation SELECT {SCHEMA_VERSION}, now(), {COMPATIBLE_FROM}")
            _check_engines(connection, address)
    except (WarehouseUnavailableError, RowsRefusedError, UnsupportedServerError) as error:
        raise _unusable(error) from error


def check_owner(address: ServerAddress, identity: str | None) -> bool:
    """Return whether there are tables; raise if they belong to another installation."""
    try:
        with closing(open_for_loading(address)) as connection:
            tables = connection.read(_TABLES, {})
    except (WarehouseUnavailableError, RowsRefusedError) as error:
        raise _unusable(error) from error
    if tables and _identity_in(tables) != identity:
        raise _foreign()
    return bool(tables)


def begin_copy(address: ServerAddress) -> None:
    """Record that rows are being copied into this database; refuse one that already has rows."""
    with closing(open_for_maintenance(address)) as connection:
        names = {name for name, _, _ in connection.read(_TABLES, {})}
        ((events,),) = connection.rows("SELECT count() FROM events")
        if events and _COPYING not in names:
            raise ForeignDataError("the database at MAUVE_WAREHOUSE_URL already holds events: name an empty one")
        layout = address.layout
        connection.run(
            f"CREATE TABLE IF NOT EXISTS {_COPYING}{layout.on_cluster} (begun_at DateTime)"
            f" ENGINE = {layout.replicated}MergeTree ORDER BY begun_at"
        )


def end_copy(address: ServerAddress) -> None:
    with closing(open_for_maintenance(address)) as connection:
        connection.run(f"DROP TABLE IF EXISTS {_COPYING}{address.layout.on_cluster} SYNC")


def _check_version(connection: Connection) -> None:
    ((text,),) = connection.read("SELECT version()", {})
    major, minor = map(int, text.split(".")[:2])
    if (major, minor) < _VERSION_MIN:
        least = ".".join(map(str, _VERSION_MIN))
        raise UnsupportedServerError(f"version {major}.{minor} is too old: use {least} or newer")


def _check_cluster(connection: Connection, cluster: str) -> None:
    ((servers, shards),) = connection.read(_SHARDS, {"cluster": cluster})
    if int(servers) == 0:
        raise UnsupportedServerError(f"it has no cluster '{cluster}': see system.clusters for their names")
    if int(shards) > 1:
        raise UnsupportedServerError(f"cluster '{cluster}' has several shards: name one whose servers are all replicas")


def _adopt(connection: Connection, address: ServerAddress, identity: str) -> None:
    """Claim an empty database for this installation; refuse one of another installation or a newer release."""
    tables = connection.read(_TABLES, {})
    known = _identity_in(tables)
    if known is None and not tables:
        layout = address.layout
        connection.run(
            _CREATE_INSTALLATION.format(on_cluster=layout.on_cluster, replicated=layout.replicated, identity=identity)
        )
        known = _identity_in(connection.read(_TABLES, {}))
    if known != identity:
        raise _foreign()
    ((version, compatible_from),) = connection.rows(_VERSIONS)
    if version > SCHEMA_VERSION and compatible_from > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"the tables at MAUVE_WAREHOUSE_URL were migrated to version {version} by a newer release, "
            f"but this one supports {SCHEMA_VERSION}: start that release, or a newer one"
        )


def _identity_in(tables: list[list[str]]) -> str | None:
    return next((comment for name, comment, _ in tables if name == _INSTALLATION), None)


def _check_engines(connection: Connection, address: ServerAddress) -> None:
    """Refuse tables that were created with a different cluster setting: they would not be as durable as promised."""
    engines = {name: engine for name, _, engine in connection.read(_TABLES, {})}
    missing = [table for table in KEPT_TABLES if table not in engines]
    if missing:
        raise UnsupportedServerError(f"its table '{missing[0]}' is missing: restore the database from a backup")
    are_replicated = {engines[table].startswith("Replicated") for table in KEPT_TABLES}
    if are_replicated != {address.cluster is not None}:
        advice = "leave out ?cluster" if address.cluster is not None else "add ?cluster=NAME"
        raise UnsupportedServerError(f"its tables have a different schema: {advice}, or name another database")


def _foreign() -> ForeignDataError:
    return ForeignDataError(
        "the database at MAUVE_WAREHOUSE_URL belongs to another installation or program: "
        "name the database of this installation, or an empty one"
    )


def _unusable(error: Exception) -> UnsupportedServerError:
    return UnsupportedServerError(f"ClickHouse at MAUVE_WAREHOUSE_URL cannot be used: {error}")
