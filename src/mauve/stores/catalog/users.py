"""Users, their roles and passwords."""

from typing import Any, Final

import sqlalchemy as sa

from mauve.core.user import Role, User
from mauve.stores.catalog import Account, Member, MembersCheck, Minted, OneTimeLink, Withdrawal
from mauve.stores.catalog.minting import lock_organization, minted_by, revoke
from mauve.stores.catalog.schema import links, memberships, sessions, users
from mauve.stores.sql.database import Database

_USER: Final = sa.select(users, memberships.c.org_id, memberships.c.role).join(
    memberships, memberships.c.user_id == users.c.user_id
)
_LINK_EXPIRES_AT: Final = (
    sa.select(sa.func.max(links.c.expires_at))
    .where((links.c.user_id == users.c.user_id) & links.c.used_at.is_(None))
    .scalar_subquery()
)
_MEMBER: Final = _USER.add_columns(_LINK_EXPIRES_AT.label("link_expires_at"))


class Users:
    """Users and their roles. While a check runs, the organization's members cannot change."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, user: User, link: OneTimeLink, check: MembersCheck) -> bool:
        """Store the user with a link to set the password; return False if the e-mail already has an account."""
        with self._database.writing() as tx:
            lock_organization(tx, user.org_id)
            check(_members(tx, user.org_id))
            taken = tx.execute(sa.select(users.c.user_id).where(users.c.email == user.email)).first()
            if taken is not None:
                return False
            insert_user(tx, user, password_hash=None)
            insert_link(tx, link)
        return True

    def any_exist(self) -> bool:
        with self._database.reading() as tx:
            return any_user_exists(tx)

    def find(self, user_id: str) -> Member | None:
        with self._database.reading() as tx:
            row = tx.execute(_MEMBER.where(users.c.user_id == user_id)).one_or_none()
        return None if row is None else _member_from(row)

    def all_of(self, org_id: str) -> list[Member]:
        """Return the organization's members, oldest first."""
        with self._database.reading() as tx:
            return _members(tx, org_id)

    def minted_by(self, org_id: str, user_id: str) -> Minted:
        """Return the active keys and tokens a person minted, directly or through their control tokens, oldest first."""
        with self._database.reading() as tx:
            return minted_by(tx, org_id, user_id)

    def change_role(self, org_id: str, user_id: str, role: Role, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Change the role and revoke what is withdrawn; return False if there is no such member."""
        is_it = (memberships.c.org_id == org_id) & (memberships.c.user_id == user_id)
        with self._database.writing() as tx:
            if not _is_checked_member(tx, org_id, user_id, check):
                return False
            revoke(tx, withdraw(minted_by(tx, org_id, user_id)))
            tx.execute(sa.update(memberships).where(is_it).values(role=role))
            return True

    def remove(self, org_id: str, user_id: str, check: MembersCheck, withdraw: Withdrawal) -> bool:
        """Remove the user, their sessions and links, and revoke what is withdrawn; return False if there is none."""
        with self._database.writing() as tx:
            if not _is_checked_member(tx, org_id, user_id, check):
                return False
            revoke(tx, withdraw(minted_by(tx, org_id, user_id)))
            for table in (sessions, links, memberships, users):
                tx.execute(sa.delete(table).where(table.c.user_id == user_id))
            return True


def _is_checked_member(tx: sa.Connection, org_id: str, user_id: str, check: MembersCheck) -> bool:
    """Return whether a user is a member, and lock the organization's members."""
    lock_organization(tx, org_id)
    members = _members(tx, org_id)
    check(members)
    return any(member.user.user_id == user_id for member in members)


def _members(tx: sa.Connection, org_id: str) -> list[Member]:
    query = _MEMBER.where(memberships.c.org_id == org_id).order_by(users.c.created_at, users.c.user_id)
    return [_member_from(row) for row in tx.execute(query)]


def _member_from(row: sa.Row[Any]) -> Member:
    return Member(user_from(row), row.password_hash is not None, row.link_expires_at)


def any_user_exists(tx: sa.Connection) -> bool:
    return tx.execute(sa.select(users.c.user_id).limit(1)).first() is not None


def insert_user(tx: sa.Connection, user: User, password_hash: str | None) -> None:
    row = {"user_id": user.user_id, "email": user.email, "created_at": user.created_at}
    tx.execute(sa.insert(users).values(row | {"password_hash": password_hash}))
    tx.execute(sa.insert(memberships).values(org_id=user.org_id, user_id=user.user_id, role=user.role))


def insert_link(tx: sa.Connection, link: OneTimeLink) -> None:
    row = {
        "link_id": link.link_id,
        "digest": link.digest,
        "user_id": link.user_id,
        "expires_at": link.expires_at,
        "created_at": link.created_at,
    }
    tx.execute(sa.insert(links).values(row))


def replace_password(tx: sa.Connection, user_id: str, password_hash: str) -> None:
    """Store the hash; end the user's sessions and delete their unused links."""
    tx.execute(sa.update(users).where(users.c.user_id == user_id).values(password_hash=password_hash))
    tx.execute(sa.delete(sessions).where(sessions.c.user_id == user_id))
    tx.execute(sa.delete(links).where((links.c.user_id == user_id) & links.c.used_at.is_(None)))


def user_from(row: sa.Row[Any]) -> User:
    return User(row.user_id, row.org_id, row.email, Role(row.role), row.created_at)


class Passwords:
    """Password hashes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, email: str) -> Account | None:
        with self._database.reading() as tx:
            row = tx.execute(_USER.where(users.c.email == email)).one_or_none()
        return None if row is None else Account(user_from(row), row.password_hash)

    def replace(self, user_id: str, password_hash: str) -> None:
        """Store the hash, end all sessions of the user and delete their unused links."""
        with self._database.writing() as tx:
            replace_password(tx, user_id, password_hash)
