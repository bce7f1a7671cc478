"""Rows of people and of their links, inside a transaction that someone else opened."""

from typing import Any, Final

import sqlalchemy as sa

from mauve.core.user import Role, User
from mauve.stores.catalog import OneTimeLink
from mauve.stores.sql.catalog.schema import links, memberships, sessions, users

USER: Final = sa.select(users, memberships.c.org_id, memberships.c.role).join(
    memberships, memberships.c.user_id == users.c.user_id
)


def has_anyone(tx: sa.Connection) -> bool:
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
    """Let in whoever knows the new password, and nobody else."""
    tx.execute(sa.update(users).where(users.c.user_id == user_id).values(password_hash=password_hash))
    tx.execute(sa.delete(sessions).where(sessions.c.user_id == user_id))
    tx.execute(sa.delete(links).where((links.c.user_id == user_id) & links.c.used_at.is_(None)))


def user_from(row: sa.Row[Any]) -> User:
    return User(row.user_id, row.org_id, row.email, Role(row.role), row.created_at)
