"""One-time links for invitations and new passwords. Only digests of their secrets are stored."""

import sqlalchemy as sa

from mauve.core.organization import Organization
from mauve.core.user import User
from mauve.stores.catalog import OneTimeLink
from mauve.stores.catalog.organizations import insert_organization
from mauve.stores.catalog.schema import links
from mauve.stores.catalog.users import any_user_exists, insert_link, insert_user, replace_password
from mauve.stores.sql.database import Database


class Links:
    """One-time links. Using a link and its effect happen in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def replace_setup(self, link: OneTimeLink) -> None:
        """Store the set-up link and delete earlier ones."""
        self._replace(link, links.c.user_id.is_(None))

    def replace(self, link: OneTimeLink) -> None:
        """Store a user's link and delete their earlier ones."""
        self._replace(link, links.c.user_id == link.user_id)

    def find(self, digest: bytes) -> OneTimeLink | None:
        """Return the link if it is unused."""
        with self._database.reading() as tx:
            row = tx.execute(sa.select(links).where(_unused(digest))).one_or_none()
        if row is None:
            return None
        return OneTimeLink(row.link_id, row.digest, row.user_id, row.expires_at, row.created_at)

    def use_setup(
        self, digest: bytes, organization: Organization, owner: User, password_hash: str, used_at: int
    ) -> bool:
        """Use the set-up link to create the first account and its organization; return False if either exists."""
        with self._database.writing() as tx:
            use = sa.update(links).where(_unused(digest) & links.c.user_id.is_(None)).values(used_at=used_at)
            if tx.execute(use).rowcount == 0 or any_user_exists(tx):
                return False
            insert_organization(tx, organization)
            insert_user(tx, owner, password_hash)
            return True

    def use(self, digest: bytes, password_hash: str, used_at: int) -> str | None:
        """Use a link to set a new password, as `Passwords.replace` does; return the user's id."""
        with self._database.writing() as tx:
            use = sa.update(links).where(_unused(digest) & links.c.user_id.is_not(None)).values(used_at=used_at)
            user_id = tx.execute(use.returning(links.c.user_id)).scalar_one_or_none()
            if user_id is not None:
                replace_password(tx, user_id, password_hash)
            return user_id

    def _replace(self, link: OneTimeLink, same_holder: sa.ColumnElement[bool]) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.delete(links).where(same_holder))
            insert_link(tx, link)


def _unused(digest: bytes) -> sa.ColumnElement[bool]:
    return (links.c.digest == digest) & links.c.used_at.is_(None)
