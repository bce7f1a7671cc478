"""The hashes of passwords."""

from mauve.stores.catalog import Account
from mauve.stores.sql.catalog.member_rows import USER, replace_password, user_from
from mauve.stores.sql.catalog.schema import users
from mauve.stores.sql.database import Database


class SqlPasswords:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, email: str) -> Account | None:
        with self._database.reading() as tx:
            row = tx.execute(USER.where(users.c.email == email)).one_or_none()
        return None if row is None else Account(user_from(row), row.password_hash)

    def replace(self, user_id: str, password_hash: str) -> None:
        with self._database.writing() as tx:
            replace_password(tx, user_id, password_hash)
