"""The engines of each seam: the suites in this folder run on all of them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from mauve.core.secret import Secret
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.limits.accepted import AcceptedExchange, FileAcceptedCounts
from mauve.stores.limits.read_meter import ReadMeter
from mauve.stores.sql.database import Database, machine_time, sqlite_url
from mauve.stores.sql.migrate import CATALOG, LEDGER, Chain, migrate
from mauve.stores.sql.processes import SqlAcceptedCounts
from mauve.stores.warehouse import Connection
from mauve.stores.warehouse.server.schema import migrate as migrate_warehouse
from mauve.stores.warehouse.server.server import (
    ServerAddress,
    ServerConnection,
    address_from,
    open_for_loading,
    open_for_maintenance,
)
from mauve.stores.warehouse.server.warehouse import ServerWarehouse
from mauve.stores.warehouse.warehouse import ChdbWarehouse, ClickHouseWarehouse
from support.catalog_entries import Follower
from support.service import PATIENCE_S

SQL_ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.servers))
WAREHOUSE_ENGINES = ("chdb", pytest.param("clickhouse", marks=pytest.mark.servers))
NATS = pytest.param("nats", marks=pytest.mark.servers)


@pytest.fixture(scope="session")
def new_sql_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Chain, Path], sa.URL]]:
    """Create a migrated database on an engine. Copying one is faster than migrating again."""
    folder = tmp_path_factory.mktemp("migrated")
    numbers = count()
    with ExitStack() as open_servers:
        server = cache(lambda: open_servers.enter_context(_postgresql()))

        @cache
        def template(engine: str, chain: Chain) -> Path | str:
            name = f"template_{chain.version_table}"
            path = folder / f"{name}.db"
            url = sqlite_url(path) if engine == "sqlite" else sa.make_url(server().create(name))
            with closing(Database(url, busy_timeout_s=PATIENCE_S)) as database:
                migrate(database, chain)
            return path if engine == "sqlite" else name

        def create(engine: str, chain: Chain, own_folder: Path) -> sa.URL:
            original = template(engine, chain)
            if engine == "sqlite":
                return sqlite_url(Path(shutil.copy(original, own_folder / f"{chain.folder.parent.name}.db")))
            return sa.make_url(server().create(f"test_{next(numbers)}", str(original)))

        yield create


def _postgresql():
    from support.postgres import Postgres  # noqa: PLC0415 - its server is not needed for the embedded engines

    return Postgres()


@pytest.fixture(params=SQL_ENGINES)
def catalog_database(request: pytest.FixtureRequest, new_sql_database: Callable, tmp_path: Path) -> Iterator[Database]:
    url = new_sql_database(request.param, CATALOG, tmp_path)
    with closing(Database(url, busy_timeout_s=PATIENCE_S, time_of=machine_time)) as database:
        yield database


@pytest.fixture
def catalog(catalog_database: Database) -> Catalog:
    return Catalog(catalog_database)


@pytest.fixture(params=SQL_ENGINES)
def ledger_url(request: pytest.FixtureRequest, new_sql_database: Callable, tmp_path: Path) -> sa.URL:
    return new_sql_database(request.param, LEDGER, tmp_path)


@pytest.fixture
def open_ledger(ledger_url: sa.URL) -> Iterator[Callable[[], Database]]:
    """Open the same ledger repeatedly, as several processes do."""
    opened = []

    def open_one() -> Database:
        opened.append(Database(ledger_url, busy_timeout_s=PATIENCE_S))
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def ledger_database(open_ledger: Callable[[], Database]) -> Database:
    return open_ledger()


@pytest.fixture(params=["files", *SQL_ENGINES])
def open_exchange(
    request: pytest.FixtureRequest, new_sql_database: Callable, tmp_path: Path
) -> Iterator[Callable[[int], AcceptedExchange]]:
    """Open the exchange for the process of a stream."""
    if request.param == "files":
        yield lambda stream: FileAcceptedCounts(tmp_path / "accepted", stream)
        return
    with closing(Database(new_sql_database(request.param, CATALOG, tmp_path), busy_timeout_s=PATIENCE_S)) as database:
        yield lambda stream: SqlAcceptedCounts(database, f"machine.{stream}")


@pytest.fixture
def follower(catalog: Catalog) -> Follower:
    return Follower(catalog)


@pytest.fixture(params=SQL_ENGINES)
def open_meter(request: pytest.FixtureRequest, new_sql_database: Callable, tmp_path: Path) -> Iterator[Callable]:
    """Open the same meter repeatedly, as several processes do; each new name is a new meter."""
    opened = []

    @cache
    def place(name):
        folder = tmp_path / name
        folder.mkdir()
        return new_sql_database(request.param, CATALOG, folder)

    def open_one(name="meter"):
        opened.append(ReadMeter(Database(place(name), PATIENCE_S, time_of=machine_time)))
        return opened[-1]

    yield open_one
    for meter in opened:
        meter.close()


@pytest.fixture(scope="session")
def warehouse_address() -> Iterator[ServerAddress]:
    """A server with the warehouse's tables. The name of its database is `mauve`."""
    from support.clickhouse import ClickHouse  # noqa: PLC0415 - not needed for the embedded engine

    with ClickHouse() as server:
        address = address_from(Secret(server.create("mauve")))
        migrate_warehouse(address, "an installation")
        yield address


@pytest.fixture(scope="session", params=WAREHOUSE_ENGINES)
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A session on each engine of the warehouse. The name of its database is `mauve`."""
    if request.param == "chdb":
        yield request.getfixturevalue("embedded_connection")
        return
    with closing(open_for_loading(request.getfixturevalue("warehouse_address"))) as opened:
        yield opened


@pytest.fixture
def maintenance_connection(connection: Connection, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A session whose statements may take minutes, as commands have it."""
    if not isinstance(connection, ServerConnection):
        yield connection
        return
    with closing(open_for_maintenance(request.getfixturevalue("warehouse_address"))) as opened:
        yield opened


@pytest.fixture
def open_warehouse(connection: Connection) -> Callable[..., ClickHouseWarehouse]:
    """Open the loader's side of the warehouse repeatedly, as a process does at every start."""
    engine = ServerWarehouse if isinstance(connection, ServerConnection) else ChdbWarehouse
    return lambda over=connection, **bounds: engine(over, **bounds)


@pytest.fixture
def warehouse(open_warehouse: Callable[..., ClickHouseWarehouse]) -> ClickHouseWarehouse:
    return open_warehouse()


@pytest.fixture
def writer(ledger_database: Database) -> LedgerWriter:
    return LedgerWriter(ledger_database)


@pytest.fixture
def loader(ledger_database: Database) -> LoadLedger:
    return LoadLedger(ledger_database)


@pytest.fixture
def reader(ledger_database: Database) -> LedgerReader:
    return LedgerReader(ledger_database)
