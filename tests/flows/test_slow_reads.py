"""A read that takes too long is ended and does not block others. The engines really get endless work.

Proves: slow-warehouse, slow-reads.
"""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from mauve.control import operator
from mauve.core.credential import Scope
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.paths import ledger_path
from support.service import bearer

LIMIT_S = 3.0
# Reading the payments of a project named in `endless` never ends.
ENDLESS_PAYMENTS = """
ALTER TABLE day_totals RENAME TO real_day_totals;
CREATE TABLE endless (project TEXT);
CREATE VIEW day_totals AS SELECT * FROM real_day_totals UNION ALL
    SELECT project, '2027-01-15', 'eur', 1, '1' FROM endless
    WHERE 0 = (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE endless.project != '')
               SELECT max(i) FROM n);
"""


@pytest.fixture
def settings(settings):
    return replace(settings, read_s_max=LIMIT_S)


class Endless:
    """A connection of the real engine, with endless work for the projects in `projects`."""

    def __init__(self, connection, projects):
        self._connection, self._projects = connection, projects

    def read(self, sql, parameters):
        if not self._projects.isdisjoint(parameters.values()):
            sql = f"SELECT sum(cityHash64(number)) FROM numbers(1000000000000000) {sql[sql.index('SETTINGS') :]}"
        return self._connection.read(sql, parameters)

    def close(self):
        self._connection.close()


@pytest.fixture
def endless_projects():
    return set()


@pytest.fixture
def read_warehouse(connection, warehouse_path, endless_projects):
    for statement in TABLES:
        connection.run(statement)
    with closing(WarehouseReader(lambda: Endless(ChdbConnection(warehouse_path), endless_projects))) as reader:
        yield reader


@pytest.fixture
def new_app(client, parts):
    def make(name):
        organization = operator.create_organization(parts, name)
        token = operator.mint_token(parts, organization.org_id, "test", Scope)[1].reveal()
        return client.post("/v1/apps", json={"name": name}, headers=bearer(token)).json()

    return make


@pytest.fixture
def hostile(new_app, settings, endless_projects):
    app = new_app("Hostile")
    endless_projects.add(app["public_id"])
    with closing(sqlite3.connect(ledger_path(settings.data), isolation_level=None)) as ledger:
        ledger.executescript(ENDLESS_PAYMENTS)
        ledger.execute("INSERT INTO endless VALUES (?)", (app["public_id"],))
    return app


@pytest.fixture
def honest(new_app):
    return new_app("Honest")


@pytest.fixture
def read(client):
    def get(app, metric, **parameters):
        return client.get(f"/v1/metrics/{metric}", params=parameters, headers=bearer(app["sk_key"])).status_code

    return get


@pytest.mark.parametrize(
    ("slow", "quick", "of_the_others"), [("revenue", "mrr", "volume"), ("event_names", "mau", "dau")]
)
def test_slow_reads_of_one_organization_block_neither_others_nor_itself(
    read, hostile, honest, endless_projects, slow, quick, of_the_others
):
    windows = [{"date_from": f"2027-01-{day:02}"} for day in range(1, 5)]
    with ThreadPoolExecutor(len(windows)) as people:
        asking = [people.submit(read, hostile, slow, **window) for window in windows]
        while not any(each.done() for each in asking):  # All the time that the slow ones take, and there are several.
            assert read(honest, of_the_others, date_from=next_day(honest)) == 200
            time.sleep(0.1)  # There is a limit on reads a minute.
        assert {each.result() for each in asking} == {503}
    endless_projects.clear()
    assert read(hostile, quick) == 200, "its threads are free again"
    assert read(honest, slow) == 200


def next_day(app):
    """Return a day that was not queried before, so that the cache cannot answer."""
    app["asked"] = app.get("asked", 0) + 1
    return f"{2026 - app['asked'] // 300}-{1 + app['asked'] // 25 % 12:02}-{1 + app['asked'] % 25:02}"
