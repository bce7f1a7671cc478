"""Members: invited by a link, given a role, removed."""

from mauve.control import people
from mauve.control.links import MintedLink
from mauve.core.facts import Role, User
from mauve.core.roles import roles_within
from mauve.dashboard.page import page, see_other
from mauve.dashboard.visit import MemberVisit
from mauve.web.messages import Reply


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


def change_role(visit: MemberVisit) -> Reply:
    people.change_role(visit.control, visit.user, visit.path["user_id"], visit.chosen("role", Role))
    return see_other("/members", done="role-changed")


def confirm_removal(visit: MemberVisit) -> Reply:
    found = people.managed_member(visit.control, visit.user, visit.path["user_id"])
    return page(visit, "remove_member.html", member=found)


def remove_member(visit: MemberVisit) -> Reply:
    people.remove_member(visit.control, visit.user, visit.path["user_id"])
    return see_other("/members", done="member-removed")


def _show_link(visit: MemberVisit, user: User, link: MintedLink) -> Reply:
    url = visit.url + link.path.reveal()
    return page(visit, "invited.html", user=user, link=url, expires_at=link.expires_at)
