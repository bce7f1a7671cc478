"""An app's webhook secrets: saved and never shown, with the address that each biller is to deliver to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Final

from starlette.responses import Response

from mauve.control.webhook_secrets import save_secret, trimmed_secret
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page, see_other
from mauve.dashboard.selection import project_of
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally

DELIVERIES_SHOWN: Final = 50
_GOOD_WORDS: Final = frozenset(DeliveryResult) - {DeliveryResult.REFUSED}


class Signed(StrEnum):
    """What is known of the secret that was saved: whether a delivery was signed with it."""

    WAITING = "waiting"
    WRONG = "wrong"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one biller delivers to on one plane."""

    environment: Environment
    provider: Provider
    url: str | None  # None: the test plane is not there before its first secret is
    saved_at: int | None
    signed: Signed = Signed.WAITING


@dataclass(frozen=True, slots=True)
class Report:
    """What came of deliveries on one plane."""

    environment: Environment
    recent: Sequence[Delivery]
    tallies: Sequence[Tally]


def show_webhooks(context: MemberContext) -> Response:
    app = context.app()
    reports = _reports(context, app)
    return page(context, "webhooks.html", app=app, endpoints=_endpoints(context, app, reports), reports=reports)


def show_check(context: MemberContext) -> Response:
    """Return the part of the page that tells whether a delivery has verified; the page asks for it again and again."""
    app = context.app()
    wanted = _named_in(context)
    endpoints = _endpoints(context, app, _reports(context, app))
    (endpoint,) = (each for each in endpoints if (each.environment, each.provider) == wanted)
    return page(context, "delivery_check.html", endpoint=endpoint)


def signed_from(tallies: Sequence[Tally], provider: Provider, saved_at: int) -> Signed:
    """Judge by what came since the secret was saved: an older delivery was signed with another one."""
    since = {each.word for each in tallies if each.provider == provider and each.last_at >= saved_at}
    if since & _GOOD_WORDS:
        return Signed.GOOD
    return Signed.WRONG if DeliveryResult.REFUSED in since else Signed.WAITING


def _endpoints(context: MemberContext, app: App, reports: Sequence[Report]) -> list[Endpoint]:
    saved = context.control.catalog.webhook_secrets.saved_for(app.app_id)
    saved_at = {(secret.environment, secret.provider): secret.saved_at for secret in saved}
    tallies = {report.environment: report.tallies for report in reports}
    found = []
    for environment, provider in product(Environment, Provider):
        at = saved_at.get((environment, provider))
        signed = Signed.WAITING if at is None else signed_from(tallies.get(environment, ()), provider, at)
        found.append(Endpoint(environment, provider, _url(context, app, environment, provider), at, signed))
    return found


def _reports(context: MemberContext, app: App) -> list[Report]:
    """Return what the billers have delivered, for each plane that the app has."""
    deliveries = context.parts.deliveries
    projects = [
        (environment, project) for environment in Environment if (project := project_of(app, environment)) is not None
    ]
    return [
        Report(environment, deliveries.recent(project)[:DELIVERIES_SHOWN], deliveries.tallies(project))
        for environment, project in projects
    ]


def save_webhook_secret(context: MemberContext) -> Response:
    app = context.app()
    environment, provider = _named_in(context)
    save_secret(context.control, app, environment, provider, trimmed_secret(context.field("secret")))
    return see_other(f"/apps/{app.app_id}/webhooks", done="secret-saved")


def _named_in(context: MemberContext) -> tuple[Environment, Provider]:
    try:
        return Environment(context.path["environment"]), Provider(context.path["provider"])
    except ValueError:
        raise not_found() from None


def _url(context: MemberContext, app: App, environment: Environment, provider: Provider) -> str | None:
    public_id = project_of(app, environment)
    return None if public_id is None else f"{context.url}/v1/webhooks/{provider}/{public_id}"
