"""An app's webhook secrets: saved and never shown, with the address that each biller is to deliver to."""

from dataclasses import dataclass

from mauve.control.webhook_secrets import save_secret, trimmed_secret
from mauve.core.facts import App, Plane, Provider
from mauve.core.problems import not_found
from mauve.dashboard.page import page, see_other
from mauve.dashboard.visit import MemberVisit
from mauve.web.messages import Reply


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one biller delivers to on one plane."""

    plane: Plane
    provider: Provider
    url: str | None  # None: the test plane is not there before its first secret is
    saved_at: int | None


def show_webhooks(visit: MemberVisit) -> Reply:
    app = visit.app()
    saved = visit.control.catalog.webhook_secrets.saved_for(app.app_id)
    saved_at = {(secret.plane, secret.provider): secret.saved_at for secret in saved}
    endpoints = [
        Endpoint(plane, provider, _url(visit, app, plane, provider), saved_at.get((plane, provider)))
        for plane in Plane
        for provider in Provider
    ]
    return page(visit, "webhooks.html", app=app, endpoints=endpoints)


def save_webhook_secret(visit: MemberVisit) -> Reply:
    app = visit.app()
    try:
        plane, provider = Plane(visit.path["plane"]), Provider(visit.path["provider"])
    except ValueError:
        raise not_found() from None
    save_secret(visit.control, app, plane, provider, trimmed_secret(visit.field("secret")))
    return see_other(f"/apps/{app.app_id}/webhooks", done="secret-saved")


def _url(visit: MemberVisit, app: App, plane: Plane, provider: Provider) -> str | None:
    public_id = app.public_id if plane is Plane.LIVE else app.test_public_id
    return None if public_id is None else f"{visit.url}/v1/webhooks/{provider}/{public_id}"
