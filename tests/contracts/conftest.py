"""The engines of each seam: a suite in this folder runs over every one of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mauve.stores.catalog import Catalog
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.sql.catalog import sql_catalog
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import migrate

CATALOG_ENGINES: dict[str, Callable[[Path], str]] = {"sqlite": lambda folder: sqlite_url(folder / "catalog.db")}
EDGE_ENGINES = {"sqlite": lambda folder: SqliteEdge(folder / "edge.db", busy_timeout_s=5)}


@pytest.fixture(params=CATALOG_ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    database = Database(CATALOG_ENGINES[request.param](tmp_path), busy_timeout_s=5)
    migrate(database)
    yield sql_catalog(database)
    database.close()


@pytest.fixture(params=EDGE_ENGINES)
def open_edge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable]:
    """Open the same edge again and again, as several processes do."""
    opened = []

    def open_one():
        opened.append(EDGE_ENGINES[request.param](tmp_path))
        return opened[-1]

    yield open_one
    for edge in opened:
        edge.close()
