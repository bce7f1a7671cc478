"""Sign in and out, one-time links, and the account page: change the password, list and end sessions."""

from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from mauve.access.passwords import CHARACTERS_MIN, matches, password_from
from mauve.access.sessions import begin_session, is_expired
from mauve.control import people
from mauve.control.operator import RefusedError
from mauve.control.people import checked_hash
from mauve.core.problems import Code, Problem
from mauve.core.user import EMAIL_CHARACTERS_MAX
from mauve.dashboard.context import Context, MemberContext
from mauve.dashboard.rendering import page, see_other

_HOME: Final = "/"


def show_setup(context: Context) -> Response:
    """Show the form if the link is valid. Opening the link does not use it up."""
    try:
        people.find_setup_link(context.control, context.path["secret"])
    except Problem:
        return _invalid_link(context)
    return page(context, "set_up.html", characters_min=CHARACTERS_MIN)


def set_up(context: Context) -> Response:
    owner = people.make_first_owner(
        context.control,
        context.path["secret"],
        context.field("organization"),
        context.field("email"),
        password_from(context.field("password")),
    )
    return start_session(context, owner.user_id)


def show_password(context: Context) -> Response:
    try:
        _, holder = people.find_password_link(context.control, context.path["secret"])
    except Problem:
        return _invalid_link(context)
    organization = context.control.catalog.organizations.find(holder.org_id)
    return page(context, "set_password.html", holder=holder, organization=organization, characters_min=CHARACTERS_MIN)


def set_password(context: Context) -> Response:
    password = password_from(context.field("password"))
    holder = people.set_password(context.control, context.path["secret"], password)
    return start_session(context, holder.user_id)


def _invalid_link(context: Context) -> Response:
    return page(context, "invalid_link.html", HTTPStatus.NOT_FOUND)


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


def show_sign_in(context: Context) -> Response:
    if context.person is not None:
        return see_other(safe_path(context.asked("next")))
    is_first_time = not context.control.catalog.users.any_exist()
    next_path = context.field("next") or context.asked("next")
    return page(context, "sign_in.html", next=next_path, is_first_time=is_first_time)


def sign_in(context: Context) -> Response:
    """Sign a user in. Count the attempt before the password check, which is expensive."""
    email = context.field("email").strip().lower()[:EMAIL_CHARACTERS_MAX]
    check_attempts(context, email)
    account = context.control.catalog.passwords.find(email)
    password_hash = None if account is None else account.password_hash
    if not matches(password_from(context.field("password")), password_hash) or account is None:
        raise RefusedError("The e-mail address or the password is wrong.")
    return start_session(context, account.user.user_id, context.field("next"))


def start_session(context: Context, user_id: str, next_path: str = _HOME) -> Response:
    """Start a session and end the browser's previous one, if any."""
    if context.person is not None:
        context.control.catalog.sessions.end(context.person.user.user_id, context.person.session.session_id)
    sessions = context.control.catalog.sessions
    credential = begin_session(sessions, user_id, context.agent, context.now_ms, context.control.randomness)
    return context.parts.cookie.set(see_other(safe_path(next_path)), credential)


def sign_out(context: MemberContext) -> Response:
    context.control.catalog.sessions.end(context.user.user_id, context.member.session.session_id)
    return context.parts.cookie.clear(see_other("/signin", done="signed-out"))


def sign_out_everywhere(context: MemberContext) -> Response:
    context.control.catalog.sessions.end_all(context.user.user_id)
    return context.parts.cookie.clear(see_other("/signin", done="signed-out-everywhere"))


def check_attempts(context: Context, email: str) -> None:
    wait_s = context.parts.attempts.seconds_to_wait(email, context.address, context.now_ms)
    if wait_s:
        raise Problem(Code.RATE_LIMITED, f"Too many attempts: try again in {wait_s} seconds.", retry_after_s=wait_s)


def safe_path(path: str) -> str:
    """Return a path on this site to redirect to; the start page for anything that could lead elsewhere."""
    is_plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if is_plain and path.startswith("/") and not path.startswith("//") else _HOME
