"""The organization's own settings."""

from mauve.control import operator
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply


def show_organization(context: MemberContext) -> Reply:
    return page(context, "organization.html", organization=context.organization)


def rename_organization(context: MemberContext) -> Reply:
    operator.rename(context.control, context.organization.org_id, context.field("name"))
    return see_other("/organization", done="saved")
