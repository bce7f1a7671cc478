"""Which engine stands behind which seam. The only file that names one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from mauve.access.event_caps import EventCaps, OwnStream
from mauve.access.keyring import Keyring
from mauve.access.sign_in_attempts import PasswordAttempts
from mauve.access.token_uses import TokenUses
from mauve.access.vault import Vault, VaultError, new_master_key
from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.control.publish import Publisher
from mauve.core.clock import Clock, SystemClock
from mauve.core.ids import SystemRandomness
from mauve.core.secret import Secret
from mauve.dashboard.charts.numbers import Numbers
from mauve.dashboard.parts import DashboardParts
from mauve.ingest.counters import IngestCounters
from mauve.ingest.parts import IngestParts
from mauve.overload.admission import Admission
from mauve.overload.byte_budget import ByteBudget
from mauve.overload.loop_fairness import LoopFairness
from mauve.overload.token_bucket import TokenBuckets
from mauve.query.parts import QueryParts, ReadStores
from mauve.query.single_flight import SingleFlight
from mauve.stores.catalog import Catalog
from mauve.stores.clickhouse.warehouse_reader import ChdbWarehouseReader, ReadConnection
from mauve.stores.data_directory import alone, make_private_directory, write_private_file
from mauve.stores.deliveries import DeliveryReader
from mauve.stores.ledger import LedgerWriter, LoadLedger
from mauve.stores.localdisk.accepted_counts import FileAcceptedCounts
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.localdisk.log.reader import SegmentLogReader
from mauve.stores.localdisk.log.stream_reader import SegmentStreamReader
from mauve.stores.localdisk.log.writer import SegmentLogWriter
from mauve.stores.localdisk.read_cache import SqliteReadCache
from mauve.stores.localdisk.read_meter import SqliteReadMeter
from mauve.stores.read_cache import ReadCache
from mauve.stores.read_meter import ReadMeter
from mauve.stores.sql.catalog.catalog import sql_catalog
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.ledger.closed_days import SqlClosedDays, SqlClosedDaysReader
from mauve.stores.sql.ledger.deliveries import SqlDeliveryReader
from mauve.stores.sql.ledger.group_commit import GroupedLedger
from mauve.stores.sql.ledger.ingest_stats import SqlIngestStatsReader
from mauve.stores.sql.ledger.loading import SqlLoadLedger
from mauve.stores.sql.ledger.reader import SqlLedgerReader
from mauve.stores.sql.ledger.subscription_reader import SqlSubscriptionReader
from mauve.stores.sql.ledger.usage import SqlUsageReader
from mauve.stores.sql.ledger.writer import SqlLedgerWriter
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate, newest_revision
from mauve.stores.warehouse import WarehouseReader

if TYPE_CHECKING:
    from mauve.demo.fill import FillParts
    from mauve.load.runner import LoadParts

_MASTER_KEY_FACT: Final = "master_key_id"
_LEDGER_BUSY_TIMEOUT_S: Final = 5.0
_BODIES_BYTES_MAX: Final = 12 * 1024 * 1024
# Of each store at once. One organization may hold half of them: two, as many as there are cores on a small machine.
_READERS: Final = 4
_EDGE_BUSY_TIMEOUT_S: Final = 0.4  # shorter than the patience of whoever publishes


def catalog_path(data: Path) -> Path:
    return data / "catalog.db"


def edge_path(data: Path) -> Path:
    return data / "edge.db"


def ledger_path(data: Path) -> Path:
    return data / "ledger.db"


def log_path(data: Path) -> Path:
    return data / "log"


def warehouse_path(data: Path) -> Path:
    return data / "warehouse"


def accepted_path(data: Path) -> Path:
    return data / "accepted"


def read_cache_path(data: Path) -> Path:
    return data / "cache.db"


def read_meter_path(data: Path) -> Path:
    return data / "meter.db"


def master_key_path(data: Path) -> Path:
    return data / "master.key"


def prepare(settings: Settings) -> None:
    """Make the data directory usable: private, with a master key, with tables of this release."""
    make_private_directory(settings.data)
    with alone(settings.data, "prepare"):
        vault = _vault(settings)
        with closing(_database(settings)) as database:
            migrate(database, CATALOG)
            catalog = sql_catalog(database)
            _check_master_key(vault, catalog)
            if catalog.installation.fact(_MASTER_KEY_FACT) != vault.current_key_id:
                catalog.installation.remember(_MASTER_KEY_FACT, vault.current_key_id)
        with closing(open_ledger_database(settings)) as database:
            migrate(database, LEDGER)


@contextmanager
def control_parts(settings: Settings, clock: Clock | None = None) -> Iterator[ControlParts]:
    """Open what the control plane works with, on a prepared data directory."""
    clock = clock or SystemClock()
    with closing(_database(settings)) as database, closing(_edge(settings)) as edge:
        catalog = sql_catalog(database)
        with closing(Publisher(catalog, edge, clock)) as publisher:
            yield ControlParts(
                catalog=catalog,
                publisher=publisher,
                vault=_vault(settings),
                clock=clock,
                randomness=SystemRandomness(),
                token_uses=TokenUses(catalog.tokens),
                bounds=settings.bounds,
            )


def keyring(settings: Settings) -> Keyring:
    """Open the published keys, on a prepared data directory."""
    return Keyring(_edge(settings))


def read_cache(settings: Settings) -> ReadCache:
    """Return the answers that were given before. Its file is made when it is first used."""
    return SqliteReadCache(read_cache_path(settings.data))


def read_meter(settings: Settings) -> ReadMeter:
    """Return what counts the reads. Its file is made when it is first used."""
    return SqliteReadMeter(read_meter_path(settings.data))


@contextmanager
def query_parts(
    settings: Settings,
    ring: Keyring,
    warehouse: WarehouseReader,
    token_uses: TokenUses,
    clock: Clock | None = None,
) -> Iterator[QueryParts]:
    """Open what the query plane works with, on a prepared data directory."""
    with (
        closing(open_ledger_database(settings)) as database,
        closing(read_cache(settings)) as cache,
        closing(read_meter(settings)) as meter,
        closing(SingleFlight("read-warehouse", _READERS, settings.read_s_max)) as warehouse_flights,
        closing(SingleFlight("read-ledger", _READERS, settings.read_s_max)) as ledger_flights,
    ):
        yield QueryParts(
            keyring=ring,
            cache=cache if settings.read_cache_s else None,
            max_age_s=settings.read_cache_s,
            meter=meter,
            stores=ReadStores(warehouse, SqlLedgerReader(database), SqlClosedDaysReader(database)),
            warehouse_flights=warehouse_flights,
            ledger_flights=ledger_flights,
            clock=clock or SystemClock(),
            token_uses=token_uses,
        )


def warehouse_reader(settings: Settings) -> WarehouseReader:
    """Return what reads the warehouse, in the process that loads it. Its engine is opened when it is first used."""
    return ChdbWarehouseReader(lambda: _read_connection(settings))


def _read_connection(settings: Settings) -> ReadConnection:
    from mauve.stores.clickhouse.connection import ChdbConnection  # noqa: PLC0415 - slow, as the loader says
    from mauve.stores.clickhouse.schema import TABLES  # noqa: PLC0415

    connection = ChdbConnection(warehouse_path(settings.data))
    for statement in TABLES:  # Whoever comes first makes them, a reader or the loader.
        connection.run(statement)
    return connection


@contextmanager
def dashboard_parts(settings: Settings, control: ControlParts, query: QueryParts) -> Iterator[DashboardParts]:
    """Open what the dashboard works with: the parts of the planes behind it, and its own few.

    It is opened in the event loop that answers questions.
    """
    public_url = None if settings.public_url is None else settings.public_url.rstrip("/")
    with closing(open_ledger_database(settings)) as database:
        yield DashboardParts(
            control=control,
            attempts=PasswordAttempts(),
            meter=query.meter,
            # A page waits twice at most, and must not itself be given up before it can show what was read in time.
            numbers=Numbers(query, asyncio.get_running_loop(), wait_s=settings.catalog_timeout_s / 3),
            subscriptions=SqlSubscriptionReader(database),
            deliveries=SqlDeliveryReader(database),
            arrivals=SqlIngestStatsReader(database),
            usage=SqlUsageReader(database),
            public_url=public_url,
            proxies=settings.proxies,
        )


@asynccontextmanager
async def ingest_parts(
    settings: Settings, stream: int, registry: CollectorRegistry, clock: Clock | None = None
) -> AsyncIterator[IngestParts]:
    """Open what the ingest plane of one process works with, on a prepared data directory."""
    vault = _vault(settings)
    with closing(keyring(settings)) as ring, closing(open_ledger_database(settings)) as database:
        ring.refresh()
        log = SegmentLogWriter(
            log_path(settings.data),
            stream,
            segment_bytes=settings.segment_bytes,
            budget_bytes=settings.backlog_bytes_max,
        )
        ledger = GroupedLedger(SqlLedgerWriter(database))
        fairness = LoopFairness()
        clock = clock or SystemClock()
        own = OwnStream(stream, log, SegmentStreamReader(log_path(settings.data), stream))
        exchange = FileAcceptedCounts(accepted_path(settings.data), stream)
        caps = EventCaps(own, ring, SqlUsageReader(database), exchange, clock)
        caps.refresh()
        try:
            yield IngestParts(
                keyring=ring,
                caps=caps,
                log=log,
                ledger=ledger,
                rate=TokenBuckets(settings.publishable_requests_per_s),
                vault=vault,
                clock=clock,
                admission=Admission(lambda: log.flush_s, lambda: fairness.round_s),
                fairness=fairness,
                budget=ByteBudget(_BODIES_BYTES_MAX),
                counters=IngestCounters(registry, lambda: log.flush_s),
            )
        finally:
            await log.close()
            caps.close()
            await ledger.close()


def open_load_parts(settings: Settings) -> "LoadParts":
    """Open what the loader works with. Slow: what only the core needs is imported here, not into the workers."""
    from mauve.load.close_days import Closing  # noqa: PLC0415
    from mauve.load.loader import Loader  # noqa: PLC0415
    from mauve.load.runner import LoadParts  # noqa: PLC0415
    from mauve.stores.clickhouse.connection import ChdbConnection  # noqa: PLC0415
    from mauve.stores.clickhouse.warehouse import ChdbWarehouse  # noqa: PLC0415

    with ExitStack() as opened:
        warehouse = ChdbWarehouse(opened.enter_context(closing(ChdbConnection(warehouse_path(settings.data)))))
        ledger_database = opened.enter_context(closing(open_ledger_database(settings)))
        ledger = SqlLoadLedger(ledger_database)
        days = Closing(SqlClosedDays(ledger_database), warehouse)
        catalog = sql_catalog(opened.enter_context(closing(_database(settings))))
        clock = SystemClock()
        source = log_reader(settings)
        loader = opened.enter_context(closing(Loader(source, ledger, warehouse, clock, days)))
        return LoadParts(
            loader=loader,
            days=days,
            clock=clock,
            source=source,
            ledger=ledger,
            note_first_event=catalog.apps.note_first_event,
            close=opened.pop_all().close,
        )


@contextmanager
def fill_parts(settings: Settings, control: ControlParts) -> Iterator["FillParts"]:
    """Open what a made-up history is written with, in a process that holds the data directory alone."""
    from mauve.demo.fill import FillParts  # noqa: PLC0415 - slow, as the loader says
    from mauve.load.close_days import Closing  # noqa: PLC0415
    from mauve.stores.clickhouse.connection import ChdbConnection  # noqa: PLC0415
    from mauve.stores.clickhouse.warehouse import ChdbWarehouse  # noqa: PLC0415

    with (
        closing(ChdbConnection(warehouse_path(settings.data))) as warehouse,
        ledger_writer(settings) as ledger,
        closing(open_ledger_database(settings)) as database,
    ):
        store = ChdbWarehouse(warehouse)
        days = Closing(SqlClosedDays(database), store)
        yield FillParts(control, store, ledger, SqlLoadLedger(database), days)


def log_reader(settings: Settings) -> SegmentLogReader:
    return SegmentLogReader(log_path(settings.data))


@contextmanager
def load_ledger(settings: Settings) -> Iterator[LoadLedger]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlLoadLedger(database)


@contextmanager
def ledger_writer(settings: Settings) -> Iterator[LedgerWriter]:
    """Open the ledger for a program that records on its own, beside a running service or without one."""
    with closing(SqlLedgerWriter(open_ledger_database(settings))) as writer:
        yield writer


@contextmanager
def delivery_reader(settings: Settings) -> Iterator[DeliveryReader]:
    with closing(open_ledger_database(settings)) as database:
        yield SqlDeliveryReader(database)


def has_data(settings: Settings) -> bool:
    """Tell whether the data directory was ever prepared."""
    return catalog_path(settings.data).exists()


def check_vault(settings: Settings) -> None:
    """Raise unless the master key is there and is the right one."""
    with closing(_database(settings)) as database:
        _check_master_key(_vault(settings), sql_catalog(database))


def schema_revisions(settings: Settings) -> tuple[str | None, str]:
    """Return the revision of the tables, and the one that this release wants."""
    with closing(_database(settings)) as database:
        return current_revision(database, CATALOG), newest_revision(CATALOG)


def _database(settings: Settings) -> Database:
    # The database gives up before the request does, so that its own reason reaches the log.
    return Database(sqlite_url(catalog_path(settings.data)), busy_timeout_s=settings.catalog_timeout_s / 2)


def open_ledger_database(settings: Settings) -> Database:
    return Database(sqlite_url(ledger_path(settings.data)), busy_timeout_s=_LEDGER_BUSY_TIMEOUT_S)


def _edge(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=_EDGE_BUSY_TIMEOUT_S)


def _vault(settings: Settings) -> Vault:
    if settings.master_key is not None:
        return Vault(settings.master_key)
    path = master_key_path(settings.data)
    if not path.exists():
        if catalog_path(settings.data).exists():
            raise VaultError(f"{path} is missing: restore it from your backup or set MAUVE_MASTER_KEY")
        write_private_file(path, new_master_key().encode() + b"\n")
    return Vault(Secret(path.read_text()))


def _check_master_key(vault: Vault, catalog: Catalog) -> None:
    """Refuse master keys that cannot open everything that is stored."""
    known = catalog.installation.fact(_MASTER_KEY_FACT)
    if known is not None and not vault.knows(known):
        raise VaultError("this is not the master key of this data: restore the right one")
    if not all(vault.can_open(sealed) for sealed in catalog.webhook_secrets.all_sealed()):
        raise VaultError("some webhook secrets were sealed with an older master key: add it back behind the new one")
