"""Migrate the tables to the current schema."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from mauve.stores import NewerSchemaError
from mauve.stores.sql.database import Database


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of migrations. Two may share a database: each stores its revision in its own table."""

    folder: Path
    version_table: str


CATALOG: Final = Chain(Path(__file__).parent / "catalog" / "migrations", "alembic_version")
LEDGER: Final = Chain(Path(__file__).parent / "ledger" / "migrations", "ledger_alembic_version")


def newest_revision(chain: Chain) -> str:
    """Return the revision that this release needs."""
    return max(path.stem.partition("_")[0] for path in (chain.folder / "versions").glob("[0-9]*.py"))


def current_revision(database: Database, chain: Chain) -> str | None:
    """Return the revision of the tables; None if there are none."""
    revision = sa.select(sa.column("version_num", sa.Text)).select_from(sa.table(chain.version_table))
    with database.reading() as connection:
        if not sa.inspect(connection).has_table(chain.version_table):
            return None
        return connection.execute(revision).scalar_one_or_none()


def check_not_newer(database: Database, chain: Chain) -> str | None:
    """Return the revision of the tables; raise if this release does not know it."""
    revision, newest = current_revision(database, chain), newest_revision(chain)
    if revision is not None and revision > newest:
        raise NewerSchemaError(f"the data is at revision {revision} and this release knows {newest}: run a newer mauve")
    return revision


def migrate(database: Database, chain: Chain) -> None:
    """Run the missing migrations, all in one transaction. Do nothing if there are none.

    Several processes may start at once: the first migrates, the others wait for it and find nothing to do.
    """
    if check_not_newer(database, chain) == newest_revision(chain):
        return
    # Imported late: it is slow and rarely needed.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(chain.folder).replace("%", "%%"))
    config.attributes["version_table"] = chain.version_table
    with database.migrating() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
