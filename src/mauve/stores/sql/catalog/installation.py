"""Facts about this installation as a whole."""

import sqlalchemy as sa

from mauve.stores.sql.catalog.schema import installation
from mauve.stores.sql.database import Database


class SqlInstallation:
    def __init__(self, database: Database) -> None:
        self._database = database

    def fact(self, name: str) -> str | None:
        with self._database.reading() as tx:
            return tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one_or_none()

    def remember(self, name: str, value: str) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.delete(installation).where(installation.c.name == name))
            tx.execute(sa.insert(installation).values(name=name, value=value))

    def ping(self) -> None:
        with self._database.reading() as tx:
            tx.execute(sa.select(1))
