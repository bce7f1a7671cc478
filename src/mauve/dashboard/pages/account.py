"""One's own account: the password, and the browsers in which one is signed in."""

from mauve.access.passwords import CHARACTERS_MIN, matches, password_from
from mauve.access.sessions import begin_session, is_over
from mauve.control.links import checked_hash
from mauve.control.operator import RefusedError
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.cookie import set_cookie
from mauve.dashboard.pages.sign_in import check_attempts
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply


def show_account(visit: MemberVisit) -> Reply:
    sessions = visit.control.catalog.sessions.all_of(visit.user.user_id)
    current = [session for session in sessions if not is_over(session, visit.now_ms)]
    return page(visit, "account.html", sessions=current, characters_min=CHARACTERS_MIN)


def change_password(visit: MemberVisit) -> Reply:
    """Change the password. Every session ends, and a new one begins here."""
    user, control = visit.user, visit.control
    check_attempts(visit, user.email)
    account = control.catalog.passwords.find(user.email)
    if account is None or not matches(password_from(visit.field("current")), account.password_hash):
        raise RefusedError("The current password is wrong.")
    control.catalog.passwords.replace(user.user_id, checked_hash(password_from(visit.field("password")), user.email))
    credential = begin_session(control.catalog.sessions, user.user_id, visit.agent, visit.now_ms, control.randomness)
    return see_other("/account", set_cookie(visit.parts.public_url, credential), done="password-changed")


def end_session(visit: MemberVisit) -> Reply:
    visit.control.catalog.sessions.end(visit.user.user_id, visit.path["session_id"])
    return see_other("/account", done="session-ended")
