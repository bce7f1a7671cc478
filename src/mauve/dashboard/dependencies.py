"""The dependencies of the dashboard."""

from dataclasses import dataclass

from mauve.access.sign_in_attempts import PasswordAttempts
from mauve.alerts.messages import AlertParts
from mauve.control import ControlParts
from mauve.dashboard.cookie import SessionCookie
from mauve.dashboard.refreshing import RefreshLimits
from mauve.query.numbers import Numbers
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.ledger.ingest_stats import IngestStatsReader
from mauve.stores.ledger.payment_list import PaymentReader
from mauve.stores.ledger.subscription_list import SubscriptionReader
from mauve.stores.ledger.usage import UsageReader
from mauve.stores.limits.read_meter import ReadMeter


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
