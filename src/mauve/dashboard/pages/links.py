"""The pages of one-time links: create the first owner, set a password."""

from http import HTTPStatus

from starlette.responses import Response

from mauve.access.passwords import CHARACTERS_MIN, password_from
from mauve.control import people
from mauve.core.problems import Problem
from mauve.dashboard.context import Context
from mauve.dashboard.pages.sign_in import start_session
from mauve.dashboard.rendering import page


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
