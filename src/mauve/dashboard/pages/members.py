"""Members: invited by a link, given a role, removed."""

from functools import partial
from typing import Final

from mauve.control import people
from mauve.control.links import MintedLink
from mauve.core.roles import roles_within
from mauve.core.user import Role, User
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.pages.minted import minter_names
from mauve.dashboard.rendering import page, see_other
from mauve.stores.catalog import Minted
from mauve.web.messages import Reply

_SHOWN_MAX: Final = 50


def show_members(visit: MemberVisit) -> Reply:
    members = visit.control.catalog.users.all_of(visit.organization.org_id)
    return page(visit, "members.html", members=members, roles=roles_within(visit.user.role))


def invite(visit: MemberVisit) -> Reply:
    """Invite somebody and show the link: this once, so there is no page to send the browser on to."""
    invited, link = people.invite(visit.control, visit.user, visit.field("email"), visit.chosen("role", Role))
    return _show_link(visit, invited, link)


def renew_link(visit: MemberVisit) -> Reply:
    found = people.managed_member(visit.control, visit.user, visit.path["user_id"])
    return _show_link(visit, found.user, people.renew_link(visit.control, found.user))


class _UnconfirmedError(Exception):
    """What somebody has minted is beyond their new role: whoever changes it has not said what becomes of it."""

    def __init__(self, minted: Minted) -> None:
        super().__init__()
        self.minted = minted


def change_role(visit: MemberVisit) -> Reply:
    """Change the role; if what the person minted is beyond it, ask first what is to be revoked."""
    user_id, role = visit.path["user_id"], visit.chosen("role", Role)
    try:
        people.change_role(visit.control, visit.user, user_id, role, partial(_confirmed, visit, role))
    except _UnconfirmedError as unconfirmed:
        return _show_minted(visit, "change_role.html", unconfirmed.minted, role)
    return see_other("/members", done="role-changed")


def confirm_removal(visit: MemberVisit) -> Reply:
    found = people.managed_member(visit.control, visit.user, visit.path["user_id"])
    minted = visit.control.catalog.users.minted_by(visit.organization.org_id, found.user.user_id)
    return _show_minted(visit, "remove_member.html", minted)


def remove_member(visit: MemberVisit) -> Reply:
    people.remove_member(visit.control, visit.user, visit.path["user_id"], partial(_chosen, visit))
    return see_other("/members", done="member-removed")


def _confirmed(visit: MemberVisit, role: Role, minted: Minted) -> Minted:
    """Return what is to be revoked with a new role. It is asked for in the transaction, so nothing slips through."""
    beyond = people.beyond(role, minted)
    if beyond != Minted() and not visit.field("confirmed"):
        raise _UnconfirmedError(beyond)
    return _chosen(visit, beyond)


def _chosen(visit: MemberVisit, minted: Minted) -> Minted:
    revoke = visit.fields("revoke")
    return Minted(
        tokens=minted.tokens if "tokens" in revoke else (),
        keys=minted.keys if "keys" in revoke else (),
    )


def _show_minted(visit: MemberVisit, template: str, minted: Minted, role: Role | None = None) -> Reply:
    apps = visit.control.catalog.apps.all_of(visit.organization.org_id)
    return page(
        visit,
        template,
        member=people.managed_member(visit.control, visit.user, visit.path["user_id"]),
        minted=minted,
        minter=minter_names(visit),
        app_names={app.app_id: app.name for app in apps},
        SHOWN_MAX=_SHOWN_MAX,
        role=role,
    )


def _show_link(visit: MemberVisit, user: User, link: MintedLink) -> Reply:
    url = visit.url + link.path.reveal()
    return page(visit, "invited.html", user=user, link=url, expires_at=link.expires_at)
