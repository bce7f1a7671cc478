"""The organization's own settings."""

from starlette.responses import Response

from mauve.control import operator
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page, see_other


def show_organization(context: MemberContext) -> Response:
    return page(context, "organization.html", organization=context.organization)


def rename_organization(context: MemberContext) -> Response:
    operator.rename(context.control, context.organization.org_id, context.field("name"))
    return see_other("/organization", done="saved")
