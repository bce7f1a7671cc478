"""Apps: the list, a new one, one app's own page and its settings."""

from mauve.control import apps
from mauve.control.bodies import AppChangesBody, NewAppBody
from mauve.core.app import AppType, Ownership
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.rendering import page, see_other
from mauve.web.messages import Reply


def show_apps(visit: MemberVisit) -> Reply:
    return page(visit, "apps.html", apps=visit.control.catalog.apps.all_of(visit.organization.org_id))


def show_new_app(visit: MemberVisit) -> Reply:
    return page(visit, "new_app.html", ownerships=Ownership, types=AppType)


def create_app(visit: MemberVisit) -> Reply:
    """Create the app, and show its first key: this once, so there is no page to send the browser on to."""
    wanted = NewAppBody(visit.field("name"), visit.chosen("ownership", Ownership), visit.chosen("type", AppType))
    app, key = apps.create_app(visit.control, visit.organization.org_id, wanted, visit.user.user_id)
    return page(visit, "created_app.html", app=app, key=key.reveal(), url=visit.url)


def show_first_event(visit: MemberVisit) -> Reply:
    """Return the part of a page that waits for the first event; the page asks for it again and again."""
    return page(visit, "first_event.html", app=visit.app())


def show_settings(visit: MemberVisit) -> Reply:
    return page(visit, "app_settings.html", app=visit.app(), ownerships=Ownership, types=AppType)


def change_app(visit: MemberVisit) -> Reply:
    wanted = AppChangesBody(visit.field("name"), visit.chosen("ownership", Ownership), visit.chosen("type", AppType))
    app = apps.change_app(visit.control, visit.app(), wanted)
    return see_other(f"/apps/{app.app_id}/settings", done="saved")
