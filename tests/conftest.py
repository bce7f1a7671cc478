import base64
import gc
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from mauve.access.keyring import Keyring
from mauve.config import Settings, settings_from
from mauve.control import ControlParts, operator
from mauve.core.credential import Scope
from mauve.core.organization import Organization
from mauve.ingest.plane import IngestPlane
from mauve.load.loader import DayCloser, Loader
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.server.app import ServiceApp
from mauve.server.core import ingest_and_loading
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog.catalog import mark_original
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.sql import database
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.warehouse import ChdbWarehouse
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.web.health import Drain
from mauve.wiring.api import dashboard_parts, query_parts
from mauve.wiring.bootstrap import control_parts, prepare
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.ingest import ingest_parts
from mauve.wiring.log import open_log_reader
from mauve.wiring.warehouse import open_load_parts, open_warehouse, open_warehouse_reader
from support.clocks import ManualClock, StandingClock
from support.lifetime import Lifetime
from support.service import PATIENCE_S, SERVERS, eventually

gc.disable()  # until all tests are collected: that creates many objects and no garbage
# No test depends on the machine's speed: examples have no deadline, and clients wait for a busy service.
hypothesis_settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("patient")
_CALLS = (httpx.get, httpx.post, httpx.put, httpx.delete, httpx.request)
for _call in (*_CALLS, httpx.Client.__init__, httpx.AsyncClient.__init__):
    _call.__kwdefaults__ |= {"timeout": PATIENCE_S, "verify": False}  # No test uses TLS, and setting it up is slow.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback  # Others are slow.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--on-servers", action="store_true", help="run flows on servers, as `make engines` does")
    parser.addoption("--prove", action="store_true", help="run the long form of every fault test, as `make prove` does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the files that start services, which take longest; remove the time limit of long fault tests."""
    items.sort(key=lambda item: not hasattr(item.module, "running"))
    if config.getoption("--prove"):
        for item in items:
            item.add_marker(pytest.mark.timeout(0), append=False)


def pytest_collection_finish() -> None:
    """Leave what was collected out of every search for garbage, as a process of the service does."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> Callable[[int, int], int]:
    """Return how often to repeat a fault test: the first number in checks, the second with `make prove`."""
    is_long = pytestconfig.getoption("--prove")
    return lambda short, long: long if is_long else short


@pytest.fixture
def show_progress(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print the progress of `make prove`."""

    def show(text: str) -> None:
        if pytestconfig.getoption("--prove"):
            with capsys.disabled():
                print(f"  {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the terminal

    return show


class Servers:
    """Every engine on a server, for tests that run on servers. Each test has a catalog and a ledger of its own.

    The warehouse and the log are emptied for each: creating them again would take most of the time.
    """

    def __init__(self, opened: ExitStack) -> None:
        from support.clickhouse import ClickHouse  # noqa: PLC0415 - not needed for the embedded engines
        from support.nats import Nats  # noqa: PLC0415
        from support.nats_streams import purge_streams  # noqa: PLC0415
        from support.postgres import Postgres  # noqa: PLC0415

        self._postgres = opened.enter_context(Postgres())
        self._clickhouse = opened.enter_context(ClickHouse())
        self._nats = opened.enter_context(Nats(servers=1))
        self._purge_streams = purge_streams
        self._warehouse_url = self._clickhouse.create(_WAREHOUSE)
        self._numbers = itertools.count()

    def settings(self, template: str) -> dict[str, str]:
        """Return the settings of an installation with a copy of a database."""
        return {
            "MAUVE_DATABASE_URL": self._postgres.create(f"flow_{next(self._numbers)}", template),
            "MAUVE_WAREHOUSE_URL": self._warehouse_url,
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            **self._nats.settings(),
        }

    def clear(self) -> None:
        tables = ("events", "actives", "seen")
        rows = " + ".join(f"(SELECT count() FROM {table})" for table in tables)
        if self._clickhouse.query(f"SELECT {rows}", _WAREHOUSE).strip() != "0":  # Truncating takes far longer.
            for table in tables:
                self._clickhouse.query(f"TRUNCATE TABLE {table}", _WAREHOUSE)
        self._purge_streams(self._nats)

    def drop(self, settings: Mapping[str, str]) -> None:
        self._postgres.drop(settings["MAUVE_DATABASE_URL"])


_WAREHOUSE = "flows"


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers | None]:
    """Servers for every engine; None unless the tests run on servers."""
    if not pytestconfig.getoption("--on-servers"):
        yield None
        return
    with ExitStack() as opened:
        yield Servers(opened)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, servers: Servers | None) -> tuple[Path, str]:
    """A data directory, and the name of its database on a server, prepared once: copying is faster than migrating."""
    data = tmp_path_factory.mktemp("template") / "data"
    chosen = {} if servers is None else servers.settings("template_of_mauve")
    settings = settings_from({"MAUVE_DATA": str(data), **chosen})

    def is_prepared() -> bool:
        with suppress(StoreUnavailableError):  # Servers that have just started may answer late on a busy machine.
            prepare(settings)
            return True
        return False

    eventually(is_prepared)
    return data, chosen.get("MAUVE_DATABASE_URL", "").rpartition("/")[2]


class SharedConnection(ChdbConnection):
    """Brings the tables up to date only once, however often it is asked to, until a test has changed one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._done: set[str] = set()

    def run(self, sql: str, parameters: Mapping[str, str | int] | None = None) -> None:
        if sql in self._done:
            return
        super().run(sql, parameters)
        if sql in _MIGRATION:
            self._done.add(sql)
        elif sql.lstrip().startswith(("ALTER", "CREATE TABLE", "DROP", "RENAME")):
            self._done.clear()


_MIGRATION = frozenset(TABLES)


@pytest.fixture(scope="session")
def warehouse_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse") / "data"


@pytest.fixture(scope="session")
def embedded_connection(warehouse_path: Path) -> Iterator[ChdbConnection]:
    """The embedded warehouse, which the tests share: a process can open only one path."""
    opened = SharedConnection(warehouse_path)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def connection(embedded_connection: ChdbConnection) -> ChdbConnection:
    """The warehouse of a test: the embedded one, unless a test folder overrides it."""
    return embedded_connection


@pytest.fixture
def load(settings: Settings, clock: ManualClock, connection: ChdbConnection) -> Iterator[Callable[[], None]]:
    """Load everything accepted into the shared warehouse, as the core's loader does into its own."""
    for table in ("events", "actives", "seen"):  # rows of other tests may have the same positions
        connection.run(f"TRUNCATE TABLE IF EXISTS mauve.{table}")
    with closing(open_ledger_database(settings)) as database, ExitStack() as opened:
        on_server = settings.warehouse_url is not None
        warehouse = opened.enter_context(open_warehouse(settings)) if on_server else ChdbWarehouse(connection)
        days = DayCloser(ClosedDays(database), warehouse)
        loader = Loader(open_log_reader(settings), LoadLedger(database), warehouse, clock, days)

        def load_all() -> None:
            while loader.load_next_range():
                pass

        yield load_all
        loader.close()


@pytest.fixture(autouse=True)
def _clock_of_the_test(servers: Servers | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test's clock decide windows and expiry: on servers, the server's would."""
    if servers is not None:
        monkeypatch.setattr(database, "server_time", database.machine_time)


@pytest.fixture(scope="session")
def shared_lifetime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lifetime]:
    with ExitStack() as opened:
        yield Lifetime(opened, tmp_path_factory.mktemp("shared"), is_shared=True)


@pytest.fixture
def lifetime(
    request: pytest.FixtureRequest, shared_lifetime: Lifetime, servers: Servers | None, tmp_path: Path
) -> Iterator[Lifetime]:
    """A service of its own for each test, or one for all that are marked: each has an organization of its own."""
    is_shared = request.node.get_closest_marker("shared_service") and not request.node.get_closest_marker("own_service")
    if is_shared and servers is None:
        yield shared_lifetime
        return
    with ExitStack() as opened:
        yield Lifetime(opened, tmp_path, is_shared=False)


@contextmanager
def _new_settings(prepared: tuple[Path, str], servers: Servers | None, folder: Path) -> Iterator[Settings]:
    data, (template, database) = folder / "data", prepared
    shutil.copytree(template, data)
    data.chmod(0o700)
    patient = {"MAUVE_CATALOG_TIMEOUT_SECONDS": "60", "MAUVE_READ_SECONDS": "60"}
    plain = {"MAUVE_DATA": str(data), "MAUVE_SEGMENT_MB": "3", **patient}
    SERVERS[data] = {} if servers is None else servers.settings(database)
    if servers is not None:
        servers.clear()
    chosen = settings_from(plain | SERVERS[data])
    if servers is not None:
        with closing(open_catalog_database(chosen)) as copied:
            mark_original(copied, is_renewed=True)  # The copy of the template is meant to be used.
    yield chosen
    if servers is not None:
        servers.drop(SERVERS[data])
    del SERVERS[data]


@pytest.fixture
def settings(prepared: tuple[Path, str], servers: Servers | None, lifetime: Lifetime) -> Settings:
    new = partial(_new_settings, prepared, servers, lifetime.folder)
    return lifetime.once("settings", lambda: lifetime.opened.enter_context(new()))


@pytest.fixture
def clock(lifetime: Lifetime) -> ManualClock:
    return lifetime.once("clock", StandingClock if lifetime.is_shared else ManualClock)


@pytest.fixture
def parts(settings: Settings, clock: ManualClock, lifetime: Lifetime) -> ControlParts:
    return lifetime.once("parts", lambda: lifetime.opened.enter_context(control_parts(settings, clock)))


@pytest.fixture
def organization(parts: ControlParts) -> Organization:
    return operator.create_organization(parts, "Acme")


class AppInLifespan:
    """The core's application, opened and closed in the event loop that serves it."""

    def __init__(
        self, parts: ControlParts, settings: Settings, clock: ManualClock, warehouse: WarehouseReader | None = None
    ) -> None:
        self._parts, self._settings, self._clock = parts, settings, clock
        self.is_loading_behind = False
        self._warehouse = warehouse or open_warehouse_reader(settings)  # opens nothing until the first read

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        registry = CollectorRegistry()
        async with ingest_parts(self._settings, 0, registry, self._clock) as self.ingest:
            keyring, uses = self.ingest.keyring, self._parts.uses
            keyring.is_local = True  # Use a key right after it was published: on servers, that takes milliseconds.
            with (
                query_parts(
                    self._settings,
                    keyring,
                    self._warehouse,
                    uses,
                    self._clock,
                    is_loading_behind=lambda: self.is_loading_behind,
                ) as self.query,
                dashboard_parts(self._settings, self._parts, self.query) as self.dashboard,
            ):
                loading = LoadRunner(lambda: open_load_parts(self._settings), LoadMetrics(registry))
                timeout_s = self._settings.catalog_timeout_s
                others = ingest_and_loading(self._settings, IngestPlane(self.ingest), loading, Drain())
                self._app = ServiceApp(self._parts, self.query, self.dashboard, others, timeout_s=timeout_s)
                await send({"type": "lifespan.startup.complete"})
                await receive()
        await send({"type": "lifespan.shutdown.complete"})


@pytest.fixture
def read_warehouse() -> WarehouseReader | None:
    """The warehouse to read metrics from: the service's own, unless a test folder overrides it."""
    return None


@pytest.fixture
def core(
    parts: ControlParts,
    settings: Settings,
    clock: ManualClock,
    read_warehouse: WarehouseReader | None,
    lifetime: Lifetime,
) -> AppInLifespan:
    return lifetime.once("core", lambda: AppInLifespan(parts, settings, clock, read_warehouse))


@pytest.fixture
def client(core: AppInLifespan, lifetime: Lifetime) -> TestClient:
    opened = lifetime.once("client", lambda: lifetime.opened.enter_context(TestClient(core)))
    opened.headers.pop("authorization", None)  # of a test before
    opened.cookies.clear()
    return opened


@pytest.fixture
def keyring(core: AppInLifespan, client: TestClient) -> Keyring:
    """The keyring of the client's ingest plane."""
    return core.ingest.keyring


@pytest.fixture
def token(parts: ControlParts, organization: Organization) -> str:
    """A control token with every scope."""
    return operator.mint_token(parts, organization.org_id, "test", Scope)[1].reveal()


@pytest.fixture
def api(client: TestClient, token: str) -> TestClient:
    """A client that presents the token."""
    client.headers["authorization"] = f"Bearer {token}"
    return client
