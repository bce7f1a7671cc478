"""Signing in and out."""

from typing import Final

from mauve.access.passwords import matches, password_from
from mauve.access.sessions import begin_session
from mauve.control.operator import RefusedError
from mauve.core.problems import Code, Problem
from mauve.dashboard.context import MemberVisit, Visit
from mauve.dashboard.cookie import clear_cookie, set_cookie
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply

_HOME: Final = "/"


def show_sign_in(visit: Visit) -> Reply:
    if visit.person is not None:
        return see_other(_HOME)
    return page(visit, "sign_in.html", next=visit.field("next") or visit.asked("next"))


def sign_in(visit: Visit) -> Reply:
    """Let somebody in. Attempts are counted before the password is checked, which is costly."""
    email = visit.field("email").strip().lower()[:EMAIL_CHARACTERS_MAX]
    check_attempts(visit, email)
    account = visit.control.catalog.passwords.find(email)
    password_hash = None if account is None else account.password_hash
    if not matches(password_from(visit.field("password")), password_hash) or account is None:
        raise RefusedError("The e-mail address or the password is wrong.")
    return let_in(visit, account.user.user_id, visit.field("next"))


def let_in(visit: Visit, user_id: str, next_path: str = _HOME) -> Reply:
    """Begin a session, in place of whatever session the browser had."""
    if visit.person is not None:
        visit.control.catalog.sessions.end(visit.person.user.user_id, visit.person.session.session_id)
    sessions = visit.control.catalog.sessions
    credential = begin_session(sessions, user_id, visit.agent, visit.now_ms, visit.control.randomness)
    return see_other(safe_path(next_path), set_cookie(visit.parts.public_url, credential))


def sign_out(visit: MemberVisit) -> Reply:
    visit.control.catalog.sessions.end(visit.user.user_id, visit.member.session.session_id)
    return see_other("/signin", clear_cookie(visit.parts.public_url), done="signed-out")


def sign_out_everywhere(visit: MemberVisit) -> Reply:
    visit.control.catalog.sessions.end_all(visit.user.user_id)
    return see_other("/signin", clear_cookie(visit.parts.public_url), done="signed-out-everywhere")


def check_attempts(visit: Visit, email: str) -> None:
    wait_s = visit.parts.attempts.seconds_to_wait(email, visit.address, visit.now_ms)
    if wait_s:
        raise Problem(Code.RATE_LIMITED, f"Too many attempts: try again in {wait_s} seconds.", retry_after_s=wait_s)


def safe_path(path: str) -> str:
    """Return a path of ours to go on to; anything that could lead elsewhere leads home."""
    is_plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if is_plain and path.startswith("/") and not path.startswith("//") else _HOME
