"""Bringing the tables up to date."""

from pathlib import Path
from typing import Final

import sqlalchemy as sa

from mauve.stores.sql.database import Database
from mauve.stores.unavailable import NewerSchemaError

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
NEWEST_REVISION: Final = max(path.stem.partition("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def current_revision(database: Database) -> str | None:
    """Return the revision of the tables; None if there are none yet."""
    with database.reading() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def migrate(database: Database) -> None:
    """Run the migrations that are missing, all in one transaction. Does nothing when there are none."""
    revision = current_revision(database)
    if revision == NEWEST_REVISION:
        return
    if revision is not None and revision > NEWEST_REVISION:
        raise NewerSchemaError(
            f"the data is at revision {revision} and this release knows {NEWEST_REVISION}: run a newer mauve"
        )
    # Imported late: it is slow, and hardly ever needed.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
