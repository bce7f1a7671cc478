"""The catalog in a SQL database, assembled, and the values of the installation."""

import sqlalchemy as sa

from mauve.stores.catalog.apps import Apps
from mauve.stores.catalog.keys import Keys
from mauve.stores.catalog.links import Links
from mauve.stores.catalog.organizations import Organizations
from mauve.stores.catalog.published import Published
from mauve.stores.catalog.schema import installation
from mauve.stores.catalog.sessions import Sessions
from mauve.stores.catalog.tokens import Tokens
from mauve.stores.catalog.users import Passwords, Users
from mauve.stores.catalog.webhook_secrets import WebhookSecrets
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


class Installation:
    """Values kept for the installation as a whole, by name."""

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
        """Store a value unless there is one; return the stored one."""
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, installation).values(name=name, value=value)
            tx.execute(insert.on_conflict_do_nothing(index_elements=[installation.c.name]))
            stored: str = tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one()
            return stored

    def ping(self) -> None:
        """Return if the catalog answers."""
        with self._database.reading() as tx:
            tx.execute(sa.select(1))


class Catalog:
    def __init__(self, database: Database) -> None:
        self.organizations = Organizations(database)
        self.apps = Apps(database)
        self.keys = Keys(database)
        self.tokens = Tokens(database)
        self.webhook_secrets = WebhookSecrets(database)
        self.users = Users(database)
        self.passwords = Passwords(database)
        self.links = Links(database)
        self.sessions = Sessions(database)
        self.published = Published(database)
        self.installation = Installation(database)
