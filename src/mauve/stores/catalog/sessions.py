"""Sessions of users. Only the digest of the browser's secret is stored."""

from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.user import Role, Session, User
from mauve.stores.catalog import SignedIn
from mauve.stores.catalog.organizations import organization_from
from mauve.stores.catalog.schema import memberships, organizations, sessions, users
from mauve.stores.sql.database import Database

_SESSIONS_MAX: Final = 50  # for each user; the least recently seen is deleted
_LAST_SEEN_FIRST: Final = (sessions.c.seen_at.desc(), sessions.c.session_id)


class Sessions:
    """Signed-in browsers, on one clock for all machines. Only the digest of a browser's secret is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, session: Session, digest: bytes) -> None:
        """Store the session; delete expired ones and the user's oldest ones above a limit."""
        kept = sa.select(sessions.c.session_id).where(sessions.c.user_id == session.user_id)
        kept = kept.order_by(*_LAST_SEEN_FIRST).limit(_SESSIONS_MAX - 1)
        is_too_many = (sessions.c.user_id == session.user_id) & sessions.c.session_id.not_in(kept)
        with self._database.writing() as tx:
            begun = _moved(session, self._database.time_of(tx, session.created_at))
            tx.execute(sa.delete(sessions).where((sessions.c.expires_at <= begun.created_at) | is_too_many))
            tx.execute(sa.insert(sessions).values(_row_from(begun) | {"digest": digest}))

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
        user = User(row.user_id, row.org_id, row.email, Role(row.role), row.joined_at)
        return SignedIn(_session_from(row), user, organization, at)

    def note_seen(self, session_id: str, at: int) -> None:
        with self._database.writing() as tx:
            seen_at = self._database.time_of(tx, at)
            tx.execute(sa.update(sessions).where(sessions.c.session_id == session_id).values(seen_at=seen_at))

    def all_of(self, user_id: str) -> list[Session]:
        """Return the user's sessions, most recently seen first."""
        query = sa.select(sessions).where(sessions.c.user_id == user_id).order_by(*_LAST_SEEN_FIRST)
        with self._database.reading() as tx:
            return [_session_from(row) for row in tx.execute(query)]

    def end(self, user_id: str, session_id: str) -> None:
        is_it = (sessions.c.user_id == user_id) & (sessions.c.session_id == session_id)
        with self._database.writing() as tx:
            tx.execute(sa.delete(sessions).where(is_it))

    def end_all(self, user_id: str) -> None:
        with self._database.writing() as tx:
            tx.execute(sa.delete(sessions).where(sessions.c.user_id == user_id))


def _moved(session: Session, created_at: int) -> Session:
    """Return the session as one that begins at this time."""
    later_ms = created_at - session.created_at
    return replace(
        session,
        created_at=created_at,
        seen_at=session.seen_at + later_ms,
        expires_at=session.expires_at + later_ms,
    )


def _row_from(session: Session) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "user_id": session.user_id,
        "agent": session.agent,
        "created_at": session.created_at,
        "seen_at": session.seen_at,
        "expires_at": session.expires_at,
    }


def _session_from(row: sa.Row[Any]) -> Session:
    return Session(row.session_id, row.user_id, row.agent, row.created_at, row.seen_at, row.expires_at)
