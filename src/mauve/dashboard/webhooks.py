"""An app's webhook secrets: saved and never shown, with the address that each biller is to deliver to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mauve.control.webhook_secrets import save_secret, trimmed_secret
from mauve.core.facts import App, Plane, Provider
from mauve.core.problems import not_found
from mauve.dashboard.page import page, see_other
from mauve.dashboard.view import project_of
from mauve.dashboard.visit import MemberVisit
from mauve.stores.deliveries import Delivery, Tally
from mauve.web.messages import Reply

DELIVERIES_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one biller delivers to on one plane."""

    plane: Plane
    provider: Provider
    url: str | None  # None: the test plane is not there before its first secret is
    saved_at: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """What came of deliveries on one plane."""

    plane: Plane
    recent: Sequence[Delivery]
    tallies: Sequence[Tally]


def show_webhooks(visit: MemberVisit) -> Reply:
    app = visit.app()
    saved = visit.control.catalog.webhook_secrets.saved_for(app.app_id)
    saved_at = {(secret.plane, secret.provider): secret.saved_at for secret in saved}
    endpoints = [
        Endpoint(plane, provider, _url(visit, app, plane, provider), saved_at.get((plane, provider)))
        for plane in Plane
        for provider in Provider
    ]
    return page(visit, "webhooks.html", app=app, endpoints=endpoints, reports=_reports(visit, app))


def _reports(visit: MemberVisit, app: App) -> list[Report]:
    """Return what the billers have delivered, for each plane that the app has."""
    deliveries = visit.parts.deliveries
    projects = [(plane, project) for plane in Plane if (project := project_of(app, plane)) is not None]
    return [
        Report(plane, deliveries.recent(project)[:DELIVERIES_SHOWN], deliveries.tallies(project))
        for plane, project in projects
    ]


def save_webhook_secret(visit: MemberVisit) -> Reply:
    app = visit.app()
    try:
        plane, provider = Plane(visit.path["plane"]), Provider(visit.path["provider"])
    except ValueError:
        raise not_found() from None
    save_secret(visit.control, app, plane, provider, trimmed_secret(visit.field("secret")))
    return see_other(f"/apps/{app.app_id}/webhooks", done="secret-saved")


def _url(visit: MemberVisit, app: App, plane: Plane, provider: Provider) -> str | None:
    public_id = project_of(app, plane)
    return None if public_id is None else f"{visit.url}/v1/webhooks/{provider}/{public_id}"
