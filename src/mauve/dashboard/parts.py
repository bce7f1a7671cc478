"""What the dashboard is made of."""

from dataclasses import dataclass

from mauve.access.sign_in_attempts import PasswordAttempts
from mauve.control.parts import ControlParts
from mauve.dashboard.charts.numbers import Numbers
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ingest_stats import IngestStatsReader
from mauve.stores.read_meter import ReadMeter
from mauve.stores.subscriptions import SubscriptionReader
from mauve.stores.usage import UsageReader


@dataclass(frozen=True, slots=True)
class DashboardParts:
    control: ControlParts
    attempts: PasswordAttempts
    usage: UsageReader  # for what was counted of each organization's events
    meter: ReadMeter  # for what was counted of its reads
    numbers: Numbers
    subscriptions: SubscriptionReader
    deliveries: DeliveryReader
    arrivals: IngestStatsReader
    public_url: str | None  # under which people and billers reach the service, without a slash at its end
    proxies: int  # how many of ours stand in front
