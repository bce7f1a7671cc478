"""The catalog in a SQL database, assembled, and the values of the installation."""

import sqlalchemy as sa

from mauve.stores.catalog import Catalog
from mauve.stores.catalog.apps import SqlApps
from mauve.stores.catalog.keys import SqlKeys
from mauve.stores.catalog.links import SqlLinks
from mauve.stores.catalog.organizations import SqlOrganizations
from mauve.stores.catalog.published import SqlPublished
from mauve.stores.catalog.schema import installation
from mauve.stores.catalog.sessions import SqlSessions
from mauve.stores.catalog.tokens import SqlTokens
from mauve.stores.catalog.users import SqlPasswords, SqlUsers
from mauve.stores.catalog.webhook_secrets import SqlWebhookSecrets
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


class SqlInstallation:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        with self._database.reading() as tx:
            return tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one_or_none()

    def put(self, name: str, value: str) -> None:
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, installation).values(name=name, value=value)
            changes = {"value": insert.excluded.value}
            tx.execute(insert.on_conflict_do_update(index_elements=[installation.c.name], set_=changes))

    def create(self, name: str, value: str) -> str:
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, installation).values(name=name, value=value)
            tx.execute(insert.on_conflict_do_nothing(index_elements=[installation.c.name]))
            stored: str = tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one()
            return stored

    def ping(self) -> None:
        with self._database.reading() as tx:
            tx.execute(sa.select(1))


def sql_catalog(database: Database) -> Catalog:
    return Catalog(
        organizations=SqlOrganizations(database),
        apps=SqlApps(database),
        keys=SqlKeys(database),
        tokens=SqlTokens(database),
        webhook_secrets=SqlWebhookSecrets(database),
        users=SqlUsers(database),
        passwords=SqlPasswords(database),
        links=SqlLinks(database),
        sessions=SqlSessions(database),
        published=SqlPublished(database),
        installation=SqlInstallation(database),
    )
