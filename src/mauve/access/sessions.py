"""Browser sessions."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mauve.access.keys import digest_of
from mauve.core.ids import Randomness, new_id
from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.core.user import Session
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import SignedIn

if TYPE_CHECKING:
    from mauve.stores.catalog.users import Sessions

IDLE_MS: Final = 7 * DAY_MS
LIFETIME_MS: Final = 30 * DAY_MS
SEEN_EVERY_MS: Final = 60_000
_SECRET_CHARACTERS: Final = 40
_AGENT_CHARACTERS_MAX: Final = 200
_SECRET: Final = re.compile(r"[0-9A-Za-z]{40}", re.ASCII)


def begin_session(sessions: "Sessions", user_id: str, agent: str, now_ms: int, randomness: Randomness) -> Secret:
    """Sign a user in; return the session secret for the browser, which is not stored."""
    secret = randomness.base62(_SECRET_CHARACTERS)
    session = Session(
        session_id=new_id("ses", randomness),
        user_id=user_id,
        agent=agent[:_AGENT_CHARACTERS_MAX],
        created_at=now_ms,
        seen_at=now_ms,
        expires_at=now_ms + LIFETIME_MS,
    )
    sessions.begin(session, digest_of(secret))
    return Secret(secret)


def find_session(sessions: "Sessions", credential: str | None, now_ms: int) -> SignedIn | None:
    """Return the signed-in user, or None if the session is unknown, idle or expired."""
    if credential is None or _SECRET.fullmatch(credential) is None:
        return None
    found = sessions.find(digest_of(credential), now_ms)
    if found is None or is_expired(found.session, found.at):
        return None
    if found.at - found.session.seen_at >= SEEN_EVERY_MS:
        with suppress(StoreUnavailableError):  # A catalog that cannot be written to can still be read.
            sessions.note_seen(found.session.session_id, now_ms)
    return found


def is_expired(session: Session, now_ms: int) -> bool:
    return now_ms >= session.expires_at or now_ms >= session.seen_at + IDLE_MS
