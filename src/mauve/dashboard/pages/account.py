"""The account page: change the password, list and end sessions."""

from starlette.responses import Response

from mauve.access.passwords import CHARACTERS_MIN, matches, password_from
from mauve.access.sessions import begin_session, is_expired
from mauve.control.operator import RefusedError
from mauve.control.people import checked_hash
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.sign_in import check_attempts
from mauve.dashboard.rendering import page, see_other


def show_account(context: MemberContext) -> Response:
    sessions = context.control.catalog.sessions.all_of(context.user.user_id)
    current = [session for session in sessions if not is_expired(session, context.member.at)]
    return page(context, "account.html", sessions=current, characters_min=CHARACTERS_MIN)


def change_password(context: MemberContext) -> Response:
    """Change the password, end every session, and start a new one in this browser."""
    user, control = context.user, context.control
    check_attempts(context, user.email)
    account = control.catalog.passwords.find(user.email)
    if account is None or not matches(password_from(context.field("current")), account.password_hash):
        raise RefusedError("The current password is wrong.")
    control.catalog.passwords.replace(user.user_id, checked_hash(password_from(context.field("password")), user.email))
    credential = begin_session(
        control.catalog.sessions, user.user_id, context.agent, context.now_ms, control.randomness
    )
    return context.parts.cookie.set(see_other("/account", done="password-changed"), credential)


def end_session(context: MemberContext) -> Response:
    context.control.catalog.sessions.end(context.user.user_id, context.path["session_id"])
    return see_other("/account", done="session-ended")
