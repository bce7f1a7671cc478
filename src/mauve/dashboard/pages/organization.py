"""The organization's own settings."""

from mauve.control import operator
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply


def show_organization(visit: MemberVisit) -> Reply:
    return page(visit, "organization.html", organization=visit.organization)


def rename_organization(visit: MemberVisit) -> Reply:
    operator.rename(visit.control, visit.organization.org_id, visit.field("name"))
    return see_other("/organization", done="saved")
