"""The webhooks page of an app: endpoint URLs, signing secrets, and recent deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Final

from starlette.responses import Response

from mauve.control.bodies import invalid_body
from mauve.control.webhook_secrets import doubt_about, prepare_environment, save_secret, trimmed_secret
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberContext, project_of
from mauve.dashboard.rendering import page, see_other
from mauve.ingest.webhooks.billers import BILLERS
from mauve.ingest.webhooks.parsed import DeliveryWarning
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally

DELIVERIES_SHOWN: Final = 50
_VERIFYING_RESULTS: Final = frozenset(DeliveryResult)


class SecretCheck(StrEnum):
    """Whether a delivery has been signed with the saved secret."""

    WAITING = "waiting"
    MISMATCH = "mismatch"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The webhook endpoint of one biller in one environment."""

    environment: Environment
    provider: Provider
    url: str | None  # None until the test environment exists
    saved_at: int | None
    check: SecretCheck = SecretCheck.WAITING
    has_placeholder: bool = False  # the biller's own secret is still to be saved
    is_doubted: bool = False  # the secret just sent does not look like one of this biller

    @property
    def event_types(self) -> Sequence[str]:
        """Return the event types to select at the biller."""
        return BILLERS[self.provider].event_types


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Recent deliveries in one environment, and their counts by result."""

    environment: Environment
    recent: Sequence[Delivery]
    tallies: Sequence[Tally]

    @property
    def misdirected(self) -> Sequence[Delivery]:
        """Return the recent deliveries that were not booked because they belong to the other environment."""
        return [each for each in self.recent if DeliveryWarning.PLANE_MISMATCH in each.warnings and not each.rows]


def show_webhooks(context: MemberContext) -> Response:
    app = context.app()
    reports = _reports(context, app)
    return page(context, "webhooks.html", app=app, endpoints=_endpoints(context, app, reports), reports=reports)


def show_check(context: MemberContext) -> Response:
    """Return the fragment that shows whether a delivery has verified the secret; the page polls it."""
    app = context.app()
    wanted = _endpoint_in_path(context)
    endpoints = _endpoints(context, app, _reports(context, app))
    (endpoint,) = (each for each in endpoints if (each.environment, each.provider) == wanted)
    return page(context, "delivery_check.html", endpoint=endpoint)


def secret_check_from(tallies: Sequence[Tally], provider: Provider, saved_at: int) -> SecretCheck:
    """Check the secret against deliveries since it was saved; older ones were signed with another secret."""
    since = {each.word for each in tallies if each.provider == provider and each.last_at >= saved_at}
    if since & _VERIFYING_RESULTS:
        return SecretCheck.VERIFIED
    return SecretCheck.MISMATCH if SignatureFailure.MISMATCH in since else SecretCheck.WAITING


def _endpoints(context: MemberContext, app: App, reports: Sequence[DeliveryReport]) -> list[Endpoint]:
    secrets = context.control.catalog.webhook_secrets.saved_for(app.app_id)
    prepared = {(each.environment, each.provider) for each in secrets if each.is_placeholder}
    saved_at = {(each.environment, each.provider): each.saved_at for each in secrets if not each.is_placeholder}
    tallies = {report.environment: report.tallies for report in reports}
    found = []
    for environment, provider in product(Environment, Provider):
        at = saved_at.get((environment, provider))
        check = SecretCheck.WAITING if at is None else secret_check_from(tallies.get(environment, ()), provider, at)
        endpoint = Endpoint(
            environment,
            provider,
            _url(context, app, environment, provider),
            at,
            check,
            has_placeholder=(environment, provider) in prepared,
            is_doubted=_is_doubted(context, environment, provider),
        )
        found.append(endpoint)
    return found


def _is_doubted(context: MemberContext, environment: Environment, provider: Provider) -> bool:
    """Return whether this endpoint's form was just refused for a secret that does not look like one."""
    if context.path.get("environment") != environment or context.path.get("provider") != provider:
        return False
    text = context.field("secret").strip()
    return context.form_error is not None and bool(text) and doubt_about(trimmed_secret(text), provider) is not None


def _reports(context: MemberContext, app: App) -> list[DeliveryReport]:
    """Return the delivery report of each environment that the app has."""
    deliveries = context.parts.deliveries
    projects = [
        (environment, project) for environment in Environment if (project := project_of(app, environment)) is not None
    ]
    return [
        DeliveryReport(environment, deliveries.recent(project)[:DELIVERIES_SHOWN], deliveries.tallies(project))
        for environment, project in projects
    ]


def prepare_test(context: MemberContext) -> Response:
    """Create the test environment and its addresses, before any biller secret is known."""
    app = context.app()
    prepare_environment(context.control, app, Environment.TEST)
    return see_other(f"/apps/{app.app_id}/webhooks", done="test-prepared")


def save_webhook_secret(context: MemberContext) -> Response:
    """Save a secret. If it does not look like the biller's, save it only if the form insists."""
    app = context.app()
    environment, provider = _endpoint_in_path(context)
    secret = trimmed_secret(context.field("secret"))
    doubt = doubt_about(secret, provider)
    if doubt is not None and not context.field("insist"):
        raise invalid_body(f"{doubt}. Nothing was saved: paste the secret again, or choose to save it anyway")
    save_secret(context.control, app, environment, provider, secret)
    return see_other(f"/apps/{app.app_id}/webhooks", done="secret-saved")


def _endpoint_in_path(context: MemberContext) -> tuple[Environment, Provider]:
    try:
        return Environment(context.path["environment"]), Provider(context.path["provider"])
    except ValueError:
        raise not_found() from None


def _url(context: MemberContext, app: App, environment: Environment, provider: Provider) -> str | None:
    public_id = project_of(app, environment)
    return None if public_id is None else f"{context.ingest_url}/v1/webhooks/{provider}/{public_id}"
