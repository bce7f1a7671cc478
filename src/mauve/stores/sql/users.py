"""People and their roles."""

from typing import Any, Final

import sqlalchemy as sa

from mauve.core.facts import Role, User
from mauve.stores.catalog import Member, MembersCheck, OneTimeLink
from mauve.stores.sql.database import Database
from mauve.stores.sql.people_rows import USER, has_anyone, insert_link, insert_user, user_from
from mauve.stores.sql.schema import links, memberships, organizations, sessions, users

_LINK_EXPIRES_AT: Final = (
    sa.select(sa.func.max(links.c.expires_at))
    .where((links.c.user_id == users.c.user_id) & links.c.used_at.is_(None))
    .scalar_subquery()
)
_MEMBER: Final = USER.add_columns(_LINK_EXPIRES_AT.label("link_expires_at"))


class SqlUsers:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, user: User, link: OneTimeLink) -> bool:
        with self._database.writing() as tx:
            taken = tx.execute(sa.select(users.c.user_id).where(users.c.email == user.email)).first()
            if taken is not None:
                return False
            insert_user(tx, user, password_hash=None)
            insert_link(tx, link)
        return True

    def anyone(self) -> bool:
        with self._database.reading() as tx:
            return has_anyone(tx)

    def find(self, user_id: str) -> Member | None:
        with self._database.reading() as tx:
            row = tx.execute(_MEMBER.where(users.c.user_id == user_id)).one_or_none()
        return None if row is None else _member_from(row)

    def all_of(self, org_id: str) -> list[Member]:
        with self._database.reading() as tx:
            return _members(tx, org_id)

    def change_role(self, org_id: str, user_id: str, role: Role, check: MembersCheck) -> bool:
        is_it = (memberships.c.org_id == org_id) & (memberships.c.user_id == user_id)
        with self._database.writing() as tx:
            _hold(tx, org_id)
            check(_members(tx, org_id))
            return tx.execute(sa.update(memberships).where(is_it).values(role=role)).rowcount == 1

    def remove(self, org_id: str, user_id: str, check: MembersCheck) -> bool:
        with self._database.writing() as tx:
            _hold(tx, org_id)
            members = _members(tx, org_id)
            check(members)
            if all(member.user.user_id != user_id for member in members):
                return False
            for table in (sessions, links, memberships, users):
                tx.execute(sa.delete(table).where(table.c.user_id == user_id))
            return True


def _hold(tx: sa.Connection, org_id: str) -> None:
    """Keep others from changing the organization's members until the transaction ends."""
    tx.execute(sa.select(organizations.c.org_id).where(organizations.c.org_id == org_id).with_for_update())


def _members(tx: sa.Connection, org_id: str) -> list[Member]:
    query = _MEMBER.where(memberships.c.org_id == org_id).order_by(users.c.created_at, users.c.user_id)
    return [_member_from(row) for row in tx.execute(query)]


def _member_from(row: sa.Row[Any]) -> Member:
    return Member(user_from(row), row.password_hash is not None, row.link_expires_at)
