"""Users, their roles, passwords, one-time links and sessions. Only digests of secrets are stored."""

from dataclasses import asdict, replace
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.organization import Organization
from mauve.core.user import Role, Session, User
from mauve.stores.catalog import Account, Member, MembersCheck, Minted, OneTimeLink, SignedIn, Withdrawal
from mauve.stores.catalog.credentials import lock_organization, minted_by, revoke
from mauve.stores.catalog.organizations import insert_organization, organization_from
from mauve.stores.catalog.schema import links, memberships, organizations, sessions, users
from mauve.stores.sql.database import SqlStore, record_from

_USER: Final = sa.select(users, memberships.c.org_id, memberships.c.role).join(
    memberships, memberships.c.user_id == users.c.user_id
)
_LINK_EXPIRES_AT: Final = (
    sa.select(sa.func.max(links.c.expires_at))
    .where((links.c.user_id == users.c.user_id) & links.c.used_at.is_(None))
    .scalar_subquery()
)
_MEMBER: Final = _USER.add_columns(_LINK_EXPIRES_AT.label("link_expires_at"))


class Users(SqlStore):
    """Users and their roles. While a check runs, the organization's members cannot change."""

    def create(self, user: User, link: OneTimeLink, check: MembersCheck) -> bool:
        """Store the user with a link to set the password; return False if the e-mail already has an account."""
        with self._database.writing() as tx:
            lock_organization(tx, user.org_id)
            check(_members(tx, user.org_id))
            taken = tx.execute(sa.select(users.c.user_id).where(users.c.email == user.email)).first()
            if taken is not None:
                return False
            _insert_user(tx, user, password_hash=None)
            _insert_link(tx, link)
        return True

    def any_exist(self) -> bool:
        with self._database.reading() as tx:
            return _any_user_exists(tx)

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
    return Member(record_from(row, User), row.password_hash is not None, row.link_expires_at)


def _any_user_exists(tx: sa.Connection) -> bool:
    return tx.execute(sa.select(users.c.user_id).limit(1)).first() is not None


def _insert_user(tx: sa.Connection, user: User, password_hash: str | None) -> None:
    row = {"user_id": user.user_id, "email": user.email, "created_at": user.created_at}
    tx.execute(sa.insert(users).values(row | {"password_hash": password_hash}))
    tx.execute(sa.insert(memberships).values(org_id=user.org_id, user_id=user.user_id, role=user.role))


def _insert_link(tx: sa.Connection, link: OneTimeLink) -> None:
    tx.execute(sa.insert(links).values(asdict(link)))


def _replace_password(tx: sa.Connection, user_id: str, password_hash: str) -> None:
    """Store the hash; end the user's sessions and delete their unused links."""
    tx.execute(sa.update(users).where(users.c.user_id == user_id).values(password_hash=password_hash))
    tx.execute(sa.delete(sessions).where(sessions.c.user_id == user_id))
    tx.execute(sa.delete(links).where((links.c.user_id == user_id) & links.c.used_at.is_(None)))


class Passwords(SqlStore):
    """Password hashes."""

    def find(self, email: str) -> Account | None:
        with self._database.reading() as tx:
            row = tx.execute(_USER.where(users.c.email == email)).one_or_none()
        return None if row is None else Account(record_from(row, User), row.password_hash)

    def replace(self, user_id: str, password_hash: str) -> None:
        """Store the hash, end all sessions of the user and delete their unused links."""
        with self._database.writing() as tx:
            _replace_password(tx, user_id, password_hash)


class Links(SqlStore):
    """One-time links. Using a link and its effect happen in one transaction."""

    def replace_setup(self, link: OneTimeLink) -> None:
        """Store the set-up link and delete earlier ones."""
        self._replace(link, links.c.user_id.is_(None))

    def replace(self, link: OneTimeLink) -> None:
        """Store a user's link and delete their earlier ones."""
        self._replace(link, links.c.user_id == link.user_id)

    def find(self, digest: bytes) -> OneTimeLink | None:
        """Return the link if it is unused."""
        return self._first(sa.select(links).where(_unused(digest)), OneTimeLink)

    def use_setup(
        self, digest: bytes, organization: Organization, owner: User, password_hash: str, used_at: int
    ) -> bool:
        """Use the set-up link to create the first account and its organization; return False if either exists."""
        with self._database.writing() as tx:
            use = sa.update(links).where(_unused(digest) & links.c.user_id.is_(None)).values(used_at=used_at)
            if tx.execute(use).rowcount == 0 or _any_user_exists(tx):
                return False
            insert_organization(tx, organization)
            _insert_user(tx, owner, password_hash)
            return True

    def use(self, digest: bytes, password_hash: str, used_at: int) -> str | None:
        """Use a link to set a new password, as `Passwords.replace` does; return the user's id."""
        with self._database.writing() as tx:
            use = sa.update(links).where(_unused(digest) & links.c.user_id.is_not(None)).values(used_at=used_at)
            user_id = tx.execute(use.returning(links.c.user_id)).scalar_one_or_none()
            if user_id is not None:
                _replace_password(tx, user_id, password_hash)
            return user_id

    def _replace(self, link: OneTimeLink, same_holder: sa.ColumnElement[bool]) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.delete(links).where(same_holder))
            _insert_link(tx, link)


def _unused(digest: bytes) -> sa.ColumnElement[bool]:
    return (links.c.digest == digest) & links.c.used_at.is_(None)


_SESSIONS_MAX: Final = 50  # for each user; the least recently seen is deleted
_LAST_SEEN_FIRST: Final = (sessions.c.seen_at.desc(), sessions.c.session_id)


class Sessions(SqlStore):
    """Signed-in browsers, on one clock for all machines. Only the digest of a browser's secret is stored."""

    def begin(self, session: Session, digest: bytes) -> None:
        """Store the session; delete expired ones and the user's oldest ones above a limit."""
        kept = sa.select(sessions.c.session_id).where(sessions.c.user_id == session.user_id)
        kept = kept.order_by(*_LAST_SEEN_FIRST).limit(_SESSIONS_MAX - 1)
        is_too_many = (sessions.c.user_id == session.user_id) & sessions.c.session_id.not_in(kept)
        with self._database.writing() as tx:
            begun = _moved(session, self._database.time_of(tx, session.created_at))
            tx.execute(sa.delete(sessions).where((sessions.c.expires_at <= begun.created_at) | is_too_many))
            tx.execute(sa.insert(sessions).values(asdict(begun) | {"digest": digest}))

    def find(self, digest: bytes, now_ms: int) -> SignedIn | None:
        query = (
            sa.select(sessions, users.c.email, users.c.created_at.label("joined_at"), memberships)
            .join(users, users.c.user_id == sessions.c.user_id)
            .join(memberships, memberships.c.user_id == users.c.user_id)
            .where(sessions.c.digest == digest)
        )
        with self._database.reading() as tx:
            row = tx.execute(query).one_or_none()
            if row is None:
                return None
            its = organizations.c.org_id == row.org_id
            organization = organization_from(tx.execute(sa.select(organizations).where(its)).one())
            at = self._database.time_of(tx, now_ms)
        user = record_from(row, User, created_at=row.joined_at)
        return SignedIn(record_from(row, Session), user, organization, at)

    def note_seen(self, session_id: str, at: int) -> None:
        with self._database.writing() as tx:
            seen_at = self._database.time_of(tx, at)
            tx.execute(sa.update(sessions).where(sessions.c.session_id == session_id).values(seen_at=seen_at))

    def all_of(self, user_id: str) -> list[Session]:
        """Return the user's sessions, most recently seen first."""
        query = sa.select(sessions).where(sessions.c.user_id == user_id).order_by(*_LAST_SEEN_FIRST)
        return self._records(query, Session)

    def end(self, user_id: str, session_id: str) -> None:
        is_it = (sessions.c.user_id == user_id) & (sessions.c.session_id == session_id)
        self._execute(sa.delete(sessions).where(is_it))

    def end_all(self, user_id: str) -> None:
        self._execute(sa.delete(sessions).where(sessions.c.user_id == user_id))


def _moved(session: Session, created_at: int) -> Session:
    """Return the session as one that begins at this time."""
    later_ms = created_at - session.created_at
    return replace(
        session,
        created_at=created_at,
        seen_at=session.seen_at + later_ms,
        expires_at=session.expires_at + later_ms,
    )
