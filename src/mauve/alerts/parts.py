"""The dependencies of alerts and digests."""

from collections.abc import Mapping
from dataclasses import dataclass

from mauve.access.vault import Vault
from mauve.alerts.channels import Sender
from mauve.alerts.figures import Numbers
from mauve.core.clock import Clock
from mauve.core.ids import Randomness
from mauve.stores.alerts import AlertStore
from mauve.stores.catalog import Catalog
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ingest_stats import IngestStatsReader


@dataclass(frozen=True, slots=True)
class AlertParts:
    store: AlertStore
    catalog: Catalog
    vault: Vault
    numbers: Numbers
    ingest_stats: IngestStatsReader
    deliveries: DeliveryReader
    senders: Mapping[str, Sender]  # by the kind of channel; none for "email" unless it is set up
    clock: Clock
    randomness: Randomness
    url: str  # of the dashboard, for links
    allow_private: bool
    is_on: bool  # False: this machine judges no rules and sends nothing

    @property
    def can_mail(self) -> bool:
        return "email" in self.senders
