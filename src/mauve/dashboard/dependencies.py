"""The dependencies of the dashboard, and its session cookie."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from starlette.responses import Response

from mauve.access.sessions import LIFETIME_MS
from mauve.access.sign_in_attempts import PasswordAttempts
from mauve.alerts.outbox import AlertParts
from mauve.control import ControlParts
from mauve.core.secret import Secret
from mauve.dashboard.refreshing import RefreshLimits
from mauve.query.numbers import Numbers
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.ledger.payment_list import PaymentReader
from mauve.stores.ledger.subscription_list import SubscriptionReader
from mauve.stores.ledger.usage import IngestStatsReader, UsageReader
from mauve.stores.limits.read_meter import ReadMeter

_NAME: Final = "mauve_session"
# The prefix makes browsers refuse the cookie unless it is Secure, for the whole site and for this host alone.
_SECURE_PREFIX: Final = "__Host-"
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class SessionCookie:
    name: str
    is_secure: bool

    def set(self, response: Response, credential: Secret) -> Response:
        return self._set(response, credential.reveal(), LIFETIME_MS // 1000)

    def clear(self, response: Response) -> Response:
        return self._set(response, "", 0)

    def _set(self, response: Response, value: str, max_age_s: int) -> Response:
        response.set_cookie(
            self.name,
            value,
            max_age_s,
            secure=self.is_secure,
            httponly=True,
            samesite="Lax",  # type: ignore[arg-type]  # accepted, and the spelling of the standard
        )
        return response


def cookie_for(identity: str, public_url: str | None) -> SessionCookie:
    """Return the cookie of an installation. The ports of a host share cookies, so each installation needs its own."""
    is_secure = public_url is not None and public_url.startswith("https://")
    name = f"{_NAME}_{sha256(identity.encode()).hexdigest()[:_DIGITS]}"
    return SessionCookie(f"{_SECURE_PREFIX}{name}" if is_secure else name, is_secure)


@dataclass(frozen=True, slots=True)
class DashboardParts:
    control: ControlParts
    attempts: PasswordAttempts
    usage: UsageReader  # the number of events of each organization
    meter: ReadMeter  # the number of its reads
    numbers: Numbers
    refreshes: RefreshLimits
    payments: PaymentReader
    subscriptions: SubscriptionReader
    deliveries: DeliveryReader
    ingest_stats: IngestStatsReader
    alerts: AlertParts
    imports: ImportLedger
    cookie: SessionCookie
    has_documentation: bool  # whether the site was built
    public_url: str | None  # where browsers reach the service, without a trailing slash
    public_ingest_url: str | None  # where events and webhooks are sent, if that is elsewhere
    proxies: int  # the number of our own proxies in front
