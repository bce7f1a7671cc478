"""The list of apps, creating an app, and its settings."""

from starlette.responses import Response

from mauve.control import apps
from mauve.control.bodies import AppChangesBody, NewAppBody
from mauve.core.app import AppType, Ownership
from mauve.dashboard.context import MemberContext
from mauve.dashboard.first_numbers import FirstNumbers, first_numbers, is_onboarding
from mauve.dashboard.rendering import page, see_other


def show_apps(context: MemberContext) -> Response:
    catalog, org_id = context.control.catalog, context.organization.org_id
    return page(context, "apps.html", apps=catalog.apps.all_of(org_id), archived=catalog.apps.archived_of(org_id))


def show_new_app(context: MemberContext) -> Response:
    return page(context, "new_app.html")


def create_app(context: MemberContext) -> Response:
    """Create the app and show its first key. Without a redirect, since the key is shown only once."""
    wanted = NewAppBody(context.field("name"), context.chosen("ownership", Ownership), context.chosen("type", AppType))
    app, key = apps.create_app(context.control, context.organization.org_id, wanted, context.user.user_id)
    # The page polls for the first numbers immediately.
    return page(context, "created_app.html", app=app, key=key.reveal(), first=FirstNumbers(), is_new=True)


def show_first_event(context: MemberContext) -> Response:
    """Return the fragment that shows the first event and the first numbers; the page polls it."""
    app = context.app()
    first = first_numbers(context, app)
    return page(context, "first_event.html", app=app, first=first, is_new=is_onboarding(app, context.now_ms))


def show_settings(context: MemberContext) -> Response:
    return page(context, "app_settings.html", app=context.app())


def change_app(context: MemberContext) -> Response:
    wanted = AppChangesBody(
        context.field("name"), context.chosen("ownership", Ownership), context.chosen("type", AppType)
    )
    app = apps.change_app(context.control, context.app(), wanted)
    return see_other(f"/apps/{app.app_id}/settings", done="saved")


def confirm_archiving(context: MemberContext) -> Response:
    return page(context, "archive_app.html", app=context.app())


def archive_app(context: MemberContext) -> Response:
    app = apps.archive_app(context.control, context.app())
    return see_other(f"/apps/{app.app_id}/settings", done="app-archived")


def restore_app(context: MemberContext) -> Response:
    app = apps.restore_app(context.control, context.app())
    return see_other(f"/apps/{app.app_id}/settings", done="app-restored")
