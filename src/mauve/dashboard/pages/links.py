"""The pages behind one-time links: making the first owner, and setting a password."""

from http import HTTPStatus

from mauve.access.passwords import CHARACTERS_MIN, password_from
from mauve.control import links
from mauve.core.problems import Problem
from mauve.dashboard.context import Visit
from mauve.dashboard.pages.sign_in import let_in
from mauve.dashboard.rendering import page
from mauve.web.messages import Reply


def show_setup(visit: Visit) -> Reply:
    """Show the form if the link can be used. Looking at it does not use it up."""
    try:
        links.find_setup_link(visit.control, visit.path["secret"])
    except Problem:
        return _dead_link(visit)
    return page(visit, "set_up.html", characters_min=CHARACTERS_MIN)


def set_up(visit: Visit) -> Reply:
    owner = links.make_first_owner(
        visit.control,
        visit.path["secret"],
        visit.field("organization"),
        visit.field("email"),
        password_from(visit.field("password")),
    )
    return let_in(visit, owner.user_id)


def show_password(visit: Visit) -> Reply:
    try:
        _, holder = links.find_password_link(visit.control, visit.path["secret"])
    except Problem:
        return _dead_link(visit)
    organization = visit.control.catalog.organizations.find(holder.org_id)
    return page(visit, "set_password.html", holder=holder, organization=organization, characters_min=CHARACTERS_MIN)


def set_password(visit: Visit) -> Reply:
    password = password_from(visit.field("password"))
    holder = links.set_password(visit.control, visit.path["secret"], password)
    return let_in(visit, holder.user_id)


def _dead_link(visit: Visit) -> Reply:
    return page(visit, "dead_link.html", HTTPStatus.NOT_FOUND)
