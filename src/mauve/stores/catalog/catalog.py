"""The catalog in a SQL database, assembled, and the values of the installation."""

from typing import Final

import sqlalchemy as sa

from mauve.stores.catalog.apps import Apps, WebhookSecrets
from mauve.stores.catalog.credentials import Keys, Tokens
from mauve.stores.catalog.organizations import Organizations
from mauve.stores.catalog.published import Published
from mauve.stores.catalog.schema import installation
from mauve.stores.catalog.users import Links, Passwords, Sessions, Users
from mauve.stores.sql.database import Database, SqlStore
from mauve.stores.sql.dialects import upsert, upsert_replacing

# A row of the catalog holds the ids that PostgreSQL assigned to its database, its table and the transaction that wrote
# it. A row restored by pg_restore has the same content, but other ids. File-level copies keep them: a standby, a base
# backup, pg_upgrade.
_MARK: Final = "database_mark"
_DATABASE: Final = "(SELECT oid FROM pg_database WHERE datname = current_database())"
_IS_COPY: Final = sa.text(
    f"SELECT value <> concat_ws('.', {_DATABASE}, tableoid, xmin) FROM installation WHERE name = :mark"  # noqa: S608
)
_WRITE: Final = sa.text(
    f"""
    INSERT INTO installation (name, value) VALUES (
        :mark, concat_ws('.', {_DATABASE}, 'installation'::regclass::oid, pg_current_xact_id()::xid)
    )
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
    """  # noqa: S608 - our own words
)


def is_restored_copy(catalog: Database) -> bool:
    """Return whether this database was restored from a dump and is not reconciled yet."""
    if not catalog.is_server:
        return False
    with catalog.reading() as tx:
        return bool(tx.execute(_IS_COPY, {"mark": _MARK}).scalar_one_or_none())


def mark_original(catalog: Database, *, is_renewed: bool) -> None:
    """Mark this database as the original: the first time, or once a restored one is reconciled."""
    if not catalog.is_server:
        return
    with catalog.writing() as tx:
        has_mark = tx.execute(_IS_COPY, {"mark": _MARK}).scalar_one_or_none() is not None
        if is_renewed or not has_mark:
            tx.execute(_WRITE, {"mark": _MARK})


class Installation(SqlStore):
    """Values kept for the installation as a whole, by name."""

    def get(self, name: str) -> str | None:
        with self._database.reading() as tx:
            return tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one_or_none()

    def put(self, name: str, value: str) -> None:
        with self._database.writing() as tx:
            tx.execute(upsert_replacing(tx.dialect.name, installation), {"name": name, "value": value})

    def create(self, name: str, value: str) -> str:
        """Store a value unless there is one; return the stored one."""
        with self._database.writing() as tx:
            insert = upsert(tx.dialect.name, installation).values(name=name, value=value)
            tx.execute(insert.on_conflict_do_nothing(index_elements=[installation.c.name]))
            stored: str = tx.execute(sa.select(installation.c.value).where(installation.c.name == name)).scalar_one()
            return stored

    def ping(self) -> None:
        """Return if the catalog answers."""
        self._scalar(sa.select(1))


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
