"""One machine owns an installation that has local engines: a row of the catalog names it."""

from contextlib import closing
from dataclasses import replace

import pytest

from mauve.config import settings_from
from mauve.core.secret import Secret
from mauve.stores import ForeignDataError
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, migrate
from mauve.wiring.cluster import check_owner, machine_of, settle_owner

URL = Secret("postgresql://user@host/database")  # Only its presence matters here.


@pytest.fixture
def installation(tmp_path):
    with closing(Database(sqlite_url(tmp_path / "catalog.db"), busy_timeout_s=5)) as database:
        migrate(database, CATALOG)
        yield Catalog(database).installation


@pytest.fixture
def machine(tmp_path):
    def create(name, **urls):
        (tmp_path / name).mkdir(exist_ok=True)
        settings = settings_from({"MAUVE_DATA": str(tmp_path / name)})
        return replace(settings, database_url=URL, **urls)

    return create


LOCAL = ({}, {"warehouse_url": URL}, {"stream_url": URL})
SHARED = {"warehouse_url": URL, "stream_url": URL}


@pytest.mark.parametrize("urls", LOCAL)
@pytest.mark.parametrize("others", [*LOCAL, SHARED])
def test_a_second_machine_is_refused_while_the_first_has_a_local_engine(installation, machine, urls, others):
    first, second = machine("first", **urls), machine("second", **others)
    for _ in range(2):
        check_owner(first, installation)
        settle_owner(first, installation)
    for refuses in (check_owner, settle_owner):
        with pytest.raises(ForeignDataError, match=machine_of(first)):
            refuses(second, installation)
    settle_owner(machine("first", **SHARED), installation)
    settle_owner(second, installation)


def test_machines_with_every_engine_on_a_server_share_the_installation(installation, machine):
    for name in ("first", "second", "first"):
        settle_owner(machine(name, **SHARED), installation)
        check_owner(machine(name, **SHARED), installation)


def test_sqlite_in_the_data_directory_needs_no_owner(installation, machine):
    for name in ("first", "second"):
        settle_owner(replace(machine(name), database_url=None), installation)
    assert installation.get("owner") is None
