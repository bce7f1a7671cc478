"""Wires the dashboard: the parts of the control and query planes, and readers of the ledger."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from mauve.access.sign_in_attempts import PasswordAttempts, in_memory
from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.dashboard.charts.numbers import Numbers
from mauve.dashboard.parts import DashboardParts
from mauve.dashboard.refreshing import RefreshLimits
from mauve.query.parts import QueryParts
from mauve.stores.sql.ledger.deliveries import SqlDeliveryReader
from mauve.stores.sql.ledger.ingest_stats import SqlIngestStatsReader
from mauve.stores.sql.ledger.payment_list import SqlPaymentReader
from mauve.stores.sql.ledger.subscription_list import SqlSubscriptionReader
from mauve.stores.sql.ledger.usage import SqlUsageReader
from mauve.stores.sql.token_buckets import SqlTokenBuckets
from mauve.wiring.databases import open_catalog_database, open_ledger_database


@contextmanager
def dashboard_parts(settings: Settings, control: ControlParts, query: QueryParts) -> Iterator[DashboardParts]:
    """Open the parts of the dashboard. Call it in the event loop that runs the query plane."""
    public_url = None if settings.public_url is None else settings.public_url.rstrip("/")
    with closing(open_ledger_database(settings)) as database, closing(open_catalog_database(settings)) as catalog:
        yield DashboardParts(
            control=control,
            attempts=PasswordAttempts(partial(SqlTokenBuckets, catalog) if settings.database_url else in_memory),
            meter=query.meter,
            # A page waits at most twice, and must not time out itself before it can show what was read in time.
            numbers=Numbers(query, asyncio.get_running_loop(), wait_s=settings.catalog_timeout_s / 3),
            refreshes=RefreshLimits(),
            payments=SqlPaymentReader(database),
            subscriptions=SqlSubscriptionReader(database),
            deliveries=SqlDeliveryReader(database),
            ingest_stats=SqlIngestStatsReader(database),
            usage=SqlUsageReader(database),
            public_url=public_url,
            proxies=settings.proxies,
        )
