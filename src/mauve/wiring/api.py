"""Wires the query plane (warehouse, ledger, cache, read meter) and the dashboard with its alerts."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Final

from mauve.access.keyring import Keyring
from mauve.access.read_limits import FailOpenMeter
from mauve.access.sign_in_attempts import PasswordAttempts, in_memory
from mauve.access.uses import CredentialUses
from mauve.alerts.channels import Sender
from mauve.alerts.channels.formats import CHANNEL_KINDS
from mauve.alerts.channels.mail import SmtpSender
from mauve.alerts.channels.webhook import WebhookSender
from mauve.alerts.outbox import AlertParts
from mauve.config import SettingError, Settings
from mauve.control import ControlParts
from mauve.core.clock import Clock, SystemClock
from mauve.dashboard.dependencies import DashboardParts, SessionCookie, cookie_for
from mauve.dashboard.refreshing import RefreshLimits
from mauve.openapi.routes import has_site
from mauve.query import QueryParts, ReadStores
from mauve.query.answer_cache import AnswerCache
from mauve.query.numbers import Numbers
from mauve.query.single_flight import Admissions, SingleFlight
from mauve.stores.alerts import AlertStore
from mauve.stores.ledger.closed_days import ClosedDaysReader
from mauve.stores.ledger.deliveries import DeliveryReader
from mauve.stores.ledger.imports import ImportLedger
from mauve.stores.ledger.payment_list import PaymentReader
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.subscription_list import SubscriptionReader
from mauve.stores.ledger.usage import IngestStatsReader, UsageReader
from mauve.stores.limits.read_meter import ReadMeter
from mauve.stores.limits.token_buckets import SqlTokenBuckets
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.urls import http_url
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.paths import catalog_path, identity_path

_READERS: Final = 4
_ADMITTERS: Final = 8
_METER_BUSY_S_MAX: Final = 0.25


@contextmanager
def query_parts(
    settings: Settings,
    keyring: Keyring,
    warehouse: WarehouseReader,
    uses: CredentialUses,
    clock: Clock | None = None,
    *,
    cache: AnswerCache | None = None,
    is_loading_behind: Callable[[], bool] = lambda: False,
) -> Iterator[QueryParts]:
    """Open the parts of the query plane, on a prepared data directory."""
    with (
        closing(open_ledger_database(settings)) as database,
        closing(open_catalog_database(settings)) as catalog,
        # A local catalog that cannot be written must not make metrics unavailable or slow. On a server, uncounted reads
        # could be many.
        closing(
            ReadMeter(catalog)
            if settings.database_url
            else FailOpenMeter(Database(sqlite_url(catalog_path(settings.data)), _METER_BUSY_S_MAX))
        ) as meter,
        closing(Admissions(_ADMITTERS, settings.catalog_timeout_s)) as admissions,
        closing(SingleFlight("read-warehouse", _READERS, settings.read_s_max)) as warehouse_flights,
        closing(SingleFlight("read-ledger", _READERS, settings.read_s_max)) as ledger_flights,
    ):
        yield QueryParts(
            keyring=keyring,
            admissions=admissions,
            cache=cache or AnswerCache(),
            max_age_s=settings.read_cache_s,
            flush_s=settings.flush_s,
            meter=meter,
            stores=ReadStores(warehouse, LedgerReader(database), ClosedDaysReader(database)),
            warehouse_flights=warehouse_flights,
            ledger_flights=ledger_flights,
            clock=clock or SystemClock(),
            uses=uses,
            is_loading_behind=is_loading_behind,
        )


@contextmanager
def dashboard_parts(settings: Settings, control: ControlParts, query: QueryParts) -> Iterator[DashboardParts]:
    """Open the parts of the dashboard. Call this in the event loop that runs the query plane."""
    with closing(open_ledger_database(settings)) as database, closing(open_catalog_database(settings)) as catalog:
        # A page waits at most twice, and must show what was read before it times out.
        numbers = Numbers(query, asyncio.get_running_loop(), wait_s=settings.catalog_timeout_s / 3)
        deliveries, ingest_stats = DeliveryReader(database), IngestStatsReader(database)
        yield DashboardParts(
            control=control,
            attempts=PasswordAttempts(partial(SqlTokenBuckets, catalog) if settings.database_url else in_memory),
            meter=query.meter,
            numbers=numbers,
            refreshes=RefreshLimits(),
            payments=PaymentReader(database),
            subscriptions=SubscriptionReader(database),
            deliveries=deliveries,
            ingest_stats=ingest_stats,
            imports=ImportLedger(database),
            usage=UsageReader(database),
            alerts=AlertParts(
                store=AlertStore(catalog),
                catalog=control.catalog,
                vault=control.vault,
                numbers=numbers,
                ingest_stats=ingest_stats,
                deliveries=deliveries,
                senders=_senders(settings, control.clock),
                clock=control.clock,
                randomness=control.randomness,
                url=(settings.public_url or http_url(settings.host, settings.port)).rstrip("/"),
                allow_private=settings.alerts_allow_private,
                is_on=settings.alerts,
            ),
            cookie=session_cookie(settings),
            has_documentation=has_site(),
            public_url=_origin(settings.public_url),
            public_ingest_url=_origin(settings.public_ingest_url),
            proxies=settings.proxies,
        )


def session_cookie(settings: Settings) -> SessionCookie:
    """Return the cookie of this installation, on a prepared data directory."""
    return cookie_for(identity_path(settings.data).read_text().strip(), settings.public_url)


def _senders(settings: Settings, clock: Clock) -> Mapping[str, Sender]:
    """Return the sender for each kind of target. Without an SMTP URL, there is none for "email"."""
    webhooks = WebhookSender(allow_private=settings.alerts_allow_private, clock=clock)
    senders: dict[str, Sender] = dict.fromkeys(CHANNEL_KINDS, webhooks)
    if settings.smtp_url is not None:
        try:
            senders["email"] = SmtpSender(settings.smtp_url, settings.mail_from)
        except ValueError as error:
            raise SettingError(f"MAUVE_SMTP_URL or MAUVE_MAIL_FROM is invalid: {error}") from None
    return senders


def _origin(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/")
