"""People, their roles, and the one-time links that let them in."""

import sqlalchemy as sa

from mauve.core.facts import User
from mauve.stores.catalog import OneTimeLink
from mauve.stores.sql.database import Database
from mauve.stores.sql.schema import links, memberships, users


class SqlUsers:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, user: User, link: OneTimeLink) -> bool:
        with self._database.writing() as tx:
            taken = tx.execute(sa.select(users.c.user_id).where(users.c.email == user.email)).first()
            if taken is not None:
                return False
            row = {"user_id": user.user_id, "email": user.email, "created_at": user.created_at}
            tx.execute(sa.insert(users).values(row))
            membership = {"org_id": user.org_id, "user_id": user.user_id, "role": user.role}
            tx.execute(sa.insert(memberships).values(membership))
            _insert_link(tx, link)
        return True

    def anyone(self) -> bool:
        with self._database.reading() as tx:
            return tx.execute(sa.select(users.c.user_id).limit(1)).first() is not None

    def replace_setup_link(self, link: OneTimeLink) -> None:
        unused_setup = links.c.user_id.is_(None) & links.c.used_at.is_(None)
        with self._database.writing() as tx:
            tx.execute(sa.delete(links).where(unused_setup))
            _insert_link(tx, link)

    def find_link(self, digest: bytes) -> OneTimeLink | None:
        unused = (links.c.digest == digest) & links.c.used_at.is_(None)
        with self._database.reading() as tx:
            row = tx.execute(sa.select(links).where(unused)).one_or_none()
        if row is None:
            return None
        return OneTimeLink(row.link_id, row.digest, row.user_id, row.expires_at, row.created_at)


def _insert_link(tx: sa.Connection, link: OneTimeLink) -> None:
    row = {
        "link_id": link.link_id,
        "digest": link.digest,
        "user_id": link.user_id,
        "expires_at": link.expires_at,
        "created_at": link.created_at,
    }
    tx.execute(sa.insert(links).values(row))
