"""Real servers, started once for all tests of this folder."""

import base64
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

from support.clickhouse import ClickHouse
from support.nats import Nats
from support.postgres import Postgres
from support.service import SERVERS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.servers)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    with ClickHouse() as server:
        yield server


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Nats]:
    """A server that tests may kill and start again."""
    with Nats(1) as servers:
        yield servers


@pytest.fixture
def own_nats_server() -> Iterator[Nats]:
    """A server without the data of another installation."""
    with Nats(1) as servers:
        yield servers


@pytest.fixture(scope="module")
def nats_cluster() -> Iterator[Nats]:
    """Three servers that tests may kill and start again."""
    with Nats(3) as servers:
        yield servers


@pytest.fixture(scope="module")
def new_installation() -> Callable[[Postgres, ClickHouse, Nats], dict[str, str]]:
    """Return the settings of a new installation with every engine on a server."""
    return lambda postgres, clickhouse, nats: {
        "MAUVE_DATABASE_URL": postgres.create(f"own_{secrets.token_hex(8)}"),
        "MAUVE_WAREHOUSE_URL": clickhouse.create(),
        "MAUVE_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "MAUVE_BACKLOG_MB": "256",
        "MAUVE_READ_CACHE_SECONDS": "0",
        **nats.settings(),
    }


@pytest.fixture
def opened() -> Iterator[Callable]:
    """Close what a test opens when it ends."""
    with ExitStack() as stack:
        yield lambda each: stack.enter_context(closing(each))


@pytest.fixture
def on_postgres(postgres: Postgres, tmp_path: Path) -> Callable[[], Path]:
    """Return a new data directory whose catalog and ledger are on PostgreSQL."""
    numbers = count()

    def create() -> Path:
        data = tmp_path / f"data-{next(numbers)}"
        SERVERS[data] = {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{secrets.token_hex(8)}"),
            "MAUVE_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        }
        return data

    return create
