"""Real servers, started once for all tests of this folder."""

import base64
import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from support.clickhouse import ClickHouse
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
