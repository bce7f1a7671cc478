"""The organization's name, and its members: invite, change roles, remove."""

from functools import partial
from typing import Final

from starlette.responses import Response

from mauve.control import operator, people
from mauve.control.people import MintedLink
from mauve.core.user import Role, User, roles_within
from mauve.dashboard.context import MemberContext
from mauve.dashboard.pages.credentials import minter_names
from mauve.dashboard.rendering import page, see_other
from mauve.stores.catalog import Minted

_SHOWN_MAX: Final = 50


def show_organization(context: MemberContext) -> Response:
    return page(context, "organization.html", organization=context.organization)


def rename_organization(context: MemberContext) -> Response:
    operator.rename(context.control, context.organization.org_id, context.field("name"))
    return see_other("/organization", done="saved")


def show_members(context: MemberContext) -> Response:
    members = context.control.catalog.users.all_of(context.organization.org_id)
    return page(context, "members.html", members=members, roles=roles_within(context.user.role))


def invite(context: MemberContext) -> Response:
    """Invite a member and show the link. Without a redirect, since the link is shown only once."""
    invited, link = people.invite(context.control, context.user, context.field("email"), context.chosen("role", Role))
    return _show_link(context, invited, link)


def renew_link(context: MemberContext) -> Response:
    found = people.managed_member(context.control, context.user, context.path["user_id"])
    return _show_link(context, found.user, people.renew_link(context.control, found.user))


class _UnconfirmedError(Exception):
    """The member minted credentials beyond the new role, and the form does not say whether to revoke them."""

    def __init__(self, minted: Minted) -> None:
        super().__init__()
        self.minted = minted


def change_role(context: MemberContext) -> Response:
    """Change the role; if the member minted credentials beyond it, first ask which to revoke."""
    user_id, role = context.path["user_id"], context.chosen("role", Role)
    try:
        people.change_role(context.control, context.user, user_id, role, partial(_confirmed, context, role))
    except _UnconfirmedError as unconfirmed:
        return _show_minted(context, "change_role.html", unconfirmed.minted, role)
    return see_other("/members", done="role-changed")


def confirm_removal(context: MemberContext) -> Response:
    found = people.managed_member(context.control, context.user, context.path["user_id"])
    minted = context.control.catalog.users.minted_by(context.organization.org_id, found.user.user_id)
    return _show_minted(context, "remove_member.html", minted)


def remove_member(context: MemberContext) -> Response:
    people.remove_member(context.control, context.user, context.path["user_id"], partial(_chosen, context))
    return see_other("/members", done="member-removed")


def _confirmed(context: MemberContext, role: Role, minted: Minted) -> Minted:
    """Return the credentials to revoke. Runs in the transaction, so no credential is minted in between."""
    beyond = people.beyond(role, minted)
    if beyond != Minted() and not context.field("confirmed"):
        raise _UnconfirmedError(beyond)
    return _chosen(context, beyond)


def _chosen(context: MemberContext, minted: Minted) -> Minted:
    chosen = context.fields("revoke")
    return Minted(
        tokens=minted.tokens if "tokens" in chosen else (),
        keys=minted.keys if "keys" in chosen else (),
    )


def _show_minted(context: MemberContext, template: str, minted: Minted, role: Role | None = None) -> Response:
    catalog, org_id = context.control.catalog, context.organization.org_id
    apps = [*catalog.apps.all_of(org_id), *catalog.apps.archived_of(org_id)]
    return page(
        context,
        template,
        member=people.managed_member(context.control, context.user, context.path["user_id"]),
        minted=minted,
        minter=minter_names(context),
        app_names={app.app_id: app.name for app in apps},
        SHOWN_MAX=_SHOWN_MAX,
        role=role,
    )


def _show_link(context: MemberContext, user: User, link: MintedLink) -> Response:
    url = context.url + link.path.reveal()
    return page(context, "invited.html", user=user, link=url, expires_at=link.expires_at)
