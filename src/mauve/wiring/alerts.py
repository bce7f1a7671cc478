"""Wires alerts and digests: their store beside the catalog, and the channels."""

from collections.abc import Mapping

from mauve.alerts.channels import Sender, senders
from mauve.alerts.figures import Numbers
from mauve.alerts.parts import AlertParts
from mauve.config import SettingError, Settings
from mauve.control.parts import ControlParts
from mauve.stores.alerts.store import sql_alert_store
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ingest_stats import IngestStatsReader
from mauve.stores.sql.database import Database
from mauve.urls import http_url


def alert_parts(
    settings: Settings,
    control: ControlParts,
    catalog: Database,
    *,
    numbers: Numbers,
    ingest_stats: IngestStatsReader,
    deliveries: DeliveryReader,
) -> AlertParts:
    url = (settings.public_url or http_url(settings.host, settings.port)).rstrip("/")
    return AlertParts(
        store=sql_alert_store(catalog),
        catalog=control.catalog,
        vault=control.vault,
        numbers=numbers,
        ingest_stats=ingest_stats,
        deliveries=deliveries,
        senders=_senders(settings),
        clock=control.clock,
        randomness=control.randomness,
        url=url,
        allow_private=settings.alerts_allow_private,
        is_on=settings.alerts,
    )


def _senders(settings: Settings) -> Mapping[str, Sender]:
    allow_private = settings.alerts_allow_private
    try:
        return senders(smtp_url=settings.smtp_url, mail_from=settings.mail_from, allow_private=allow_private)
    except ValueError as error:
        raise SettingError(f"MAUVE_SMTP_URL or MAUVE_MAIL_FROM is wrong: {error}") from None
