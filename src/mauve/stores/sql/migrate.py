"""Migrate the tables to the current schema, while processes of the previous release are running.

On a server, the version table also holds the oldest compatible revision. Processes of an older release keep working,
and can start, as long as they know that revision.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
import structlog

from mauve.stores import NewerSchemaError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.sql.database import Database

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_COMPATIBLE_FROM: Final = "compatible_from"
_LOCK_NOT_AVAILABLE: Final = "55P03"  # PostgreSQL's code for a lock timeout

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of migrations. Two may share a database: each stores its revision in its own table."""

    name: str
    folder: Path
    version_table: str


_STORES: Final = Path(__file__).parent.parent
CATALOG: Final = Chain("catalog", _STORES / "catalog" / "migrations", "alembic_version")
LEDGER: Final = Chain("ledger", _STORES / "ledger" / "migrations", "ledger_alembic_version")


@cache
def newest_revision(chain: Chain) -> str:
    """Return the revision that this release needs."""
    return max(path.stem.partition("_")[0] for path in (chain.folder / "versions").glob("[0-9]*.py"))


def program_name(chain: Chain) -> str:
    """Return the program name, which reports the process's schema revision to the server."""
    return f"mauve {chain.name} {newest_revision(chain)}"


def current_revision(database: Database, chain: Chain) -> str | None:
    """Return the revision of the tables; None if there are none."""
    with database.reading() as connection:
        return _revision_in(connection, chain)


def check_not_newer(database: Database, chain: Chain) -> str | None:
    """Return the revision of the tables; raise if this release is incompatible with them."""
    with database.reading() as connection:
        revision = _revision_in(connection, chain)
        if revision is not None and revision > newest_revision(chain):
            _check_compatible(database, connection, chain, revision)
        return revision


def migrate(database: Database, chain: Chain) -> None:
    """Run the missing migrations, if any, in one transaction.

    Several processes may start simultaneously: the first migrates, and the others wait and find nothing to do.
    """
    if _is_done(check_not_newer(database, chain), chain):
        return
    try:
        with database.migrating() as connection:
            revision = _revision_in(connection, chain)  # Another machine may have migrated first.
            if not _is_done(revision, chain):
                _upgrade(database, connection, chain)
                return
    except StoreUnavailableError as error:
        if not database.is_server:
            raise
        raise UnsupportedServerError(
            f"the tables at MAUVE_DATABASE_URL could not be migrated ({error}): {_advice_after(error)}"
        ) from error
    check_not_newer(database, chain)


def migrate_files(files: Sequence[tuple[Database, Chain]]) -> None:
    """Run the missing migrations of several files: all of them, or none if one fails.

    Each file commits separately, one right after the other. If the process dies in between, the next start migrates the
    rest.
    """
    for database, chain in files:
        check_not_newer(database, chain)
    with ExitStack() as transactions:
        for database, chain in files:
            connection = transactions.enter_context(database.migrating())
            if not _is_done(_revision_in(connection, chain), chain):
                _upgrade(database, connection, chain)


def _advice_after(error: StoreUnavailableError) -> str:
    if getattr(getattr(error.__cause__, "orig", None), "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        return "a long query or a backup may be using them: try again when it has finished"
    return "they are unchanged: check the server, then try again"


def _is_done(revision: str | None, chain: Chain) -> bool:
    return revision is not None and revision >= newest_revision(chain)


def _revision_in(connection: sa.Connection, chain: Chain) -> str | None:
    if not sa.inspect(connection).has_table(chain.version_table):
        return None
    revision = sa.select(sa.column("version_num", sa.Text)).select_from(sa.table(chain.version_table))
    return connection.execute(revision).scalar_one_or_none()


def _check_compatible(database: Database, connection: sa.Connection, chain: Chain, revision: str) -> None:
    """Raise unless this release is compatible with the newer tables."""
    newest = newest_revision(chain)
    if not database.is_server:
        raise NewerSchemaError(
            f"the {chain.name} is at revision {revision}, but this release supports {newest}: "
            "run the newer mauve that migrated it, or restore an earlier backup"
        )
    oldest = sa.select(sa.column(_COMPATIBLE_FROM, sa.Text)).select_from(sa.table(chain.version_table))
    if connection.execute(oldest).scalar_one() > newest:
        raise UnsupportedServerError(
            f"the {chain.name} at MAUVE_DATABASE_URL was migrated to revision {revision} by a newer release, "
            f"but this one supports {newest}: install that release on this machine"
        )


def _upgrade(database: Database, connection: sa.Connection, chain: Chain) -> None:
    newest = scripts_of(chain).get_revision("head")
    compatible_from = getattr(newest.module, _COMPATIBLE_FROM, newest.revision)
    _refuse_while_older_run(database, connection, chain, compatible_from)
    if (revision := _revision_in(connection, chain)) is not None:
        log.info("migrating", store=chain.name, from_revision=revision, to_revision=newest.revision)
    run_migrations(connection, chain)
    if database.is_server:
        _store_compatible_from(connection, chain, compatible_from)


def run_migrations(connection: sa.Connection, chain: Chain, revision: str = "head") -> None:
    from alembic.migration import MigrationContext  # noqa: PLC0415 - slow and rarely needed
    from alembic.operations import Operations  # noqa: PLC0415

    def steps(current: Any, _context: MigrationContext) -> object:  # noqa: ANN401 - the revisions of the tables
        return scripts_of(chain)._upgrade_revs(revision, current)  # noqa: SLF001 - as Alembic documents it

    context = MigrationContext.configure(connection, opts={"version_table": chain.version_table, "fn": steps})
    with Operations.context(context):
        context.run_migrations()


def scripts_of(chain: Chain) -> "ScriptDirectory":
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - slow and rarely needed

    return ScriptDirectory(str(chain.folder))


def _refuse_while_older_run(database: Database, connection: sa.Connection, chain: Chain, compatible_from: str) -> None:
    """Raise if connected processes are incompatible with the migrated tables."""
    for program in database.programs(connection):
        _, _, known = program.partition(f"mauve {chain.name} ")
        if known and known < compatible_from:
            raise UnsupportedServerError(
                f"a machine that uses MAUVE_DATABASE_URL runs a release that is too old for the new tables "
                f"({chain.name} {known}, but {compatible_from} is needed): stop or upgrade it first"
            )


def _store_compatible_from(connection: sa.Connection, chain: Chain, revision: str) -> None:
    column = f"{_COMPATIBLE_FROM} VARCHAR(32)"
    connection.exec_driver_sql(f"ALTER TABLE {chain.version_table} ADD COLUMN IF NOT EXISTS {column}")
    table = sa.table(chain.version_table, sa.column(_COMPATIBLE_FROM))
    connection.execute(sa.update(table).values({_COMPATIBLE_FROM: revision}))
