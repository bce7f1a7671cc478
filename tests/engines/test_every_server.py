"""The whole service with every engine on a server, which die under load; and two machines on the same servers.

Proves: all-down.
"""

import os
import random
import signal
import time

import httpx2 as httpx
import pytest

from support.clickhouse import ClickHouse
from support.nats import Nats
from support.postgres import Postgres
from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    ledger_rows,
    mauve,
    running,
    stored_events,
    token_for,
    until_loaded,
)
from support.traffic import Traffic


@pytest.fixture(scope="module")
def postgres():
    """Servers that tests may kill."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def clickhouse():
    with ClickHouse() as server:
        yield server


@pytest.fixture
def nats():
    with Nats(servers=3) as servers:
        yield servers


@pytest.fixture
def chosen(new_installation, postgres, clickhouse, nats):
    return new_installation(postgres, clickhouse, nats) | {"MAUVE_CATALOG_TIMEOUT_SECONDS": "4"}


def test_after_kills_of_every_server_under_load_each_acknowledged_item_is_counted_once(
    chosen, postgres, clickhouse, nats, tmp_path
):
    chance = random.Random(20261117)
    data = tmp_path / "data"
    SERVERS[data] = chosen

    def kill_and_start(*servers):
        for index in servers:
            nats.kill(index)
        time.sleep(0.3)
        for index in servers:
            nats.start(index)

    kills = [
        lambda: kill_and_start(0),
        lambda: (postgres.kill(), postgres.start()),
        lambda: (clickhouse.kill(), clickhouse.start()),
        lambda: kill_and_start(1, 2),
        lambda: (postgres.kill(), clickhouse.kill(), clickhouse.start(), postgres.start()),
    ]
    with running(data, "--workers", "2") as service:
        # A server that dies while it commits answers neither yes nor no: such a batch may be stored or not.
        with Traffic(service, is_disk_sound=False) as traffic:
            for kill in kills:
                before = len(traffic.acked)
                eventually(lambda before=before: len(traffic.acked) > before + 20)
                time.sleep(chance.uniform(0, 0.5))
                kill()
            before = len(traffic.acked)
            eventually(lambda: len(traffic.acked) > before + 20)
        figures = traffic.figures_when_loaded(service)
        ready = eventually(lambda: httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S).json()["ok"])
        assert ready
        assert service.stop() == 0
        traffic.check(service, figures)
    assert not (data / "catalog.db").exists()
    assert not (data / "warehouse").exists()
    assert not (data / "log").exists()


def test_another_machine_takes_over_and_a_thrown_away_directory_loses_nothing(chosen, tmp_path):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for data in (first, second, third):
        SERVERS[data] = chosen
    with running(first, "--workers", "1") as one, running(second, "--workers", "1") as two:
        token = token_for(first)
        key = httpx.post(f"{one.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()["sk_key"]
        for machine in (one, two):
            eventually(lambda machine=machine: post(machine, key, f"before-{machine.url}") == 202)
        until_counted(two, key, 2)
        ((holder,),) = ledger_rows(first, "SELECT holder FROM load_lease")
        assert holder == (first / "machine").read_text().strip(), "the first machine loads"
        for pid in (one.process.pid, *one.child_pids().values()):
            os.kill(pid, signal.SIGKILL)
        assert post(two, key, "after") == 202
        until_counted(two, key, 3)
        until_loaded(two)
        ((holder,),) = ledger_rows(second, "SELECT holder FROM load_lease")
        assert holder == (second / "machine").read_text().strip()
        done = mauve(third, "org", "list")
        assert (done.returncode, "org_" in done.stdout) == (0, True), done.stderr
        assert two.stop() == 0
    ids = [row[3] for row in stored_events(second)]
    assert sorted(ids) == sorted({*ids})
    assert len(ids) == 3


def post(service, key, id_):
    reply = httpx.post(
        f"{service.ingest_url}/v1/events", json={"name": "seen", "id": id_}, headers=bearer(key), timeout=PATIENCE_S
    )
    return reply.status_code


def until_counted(service, key, count):
    def found():
        reply = httpx.get(
            f"{service.url}/v1/metrics/event_count?name=seen", headers=bearer(key), timeout=PATIENCE_S
        ).json()
        return sum(row["count"] for row in reply.get("data", ())) == count

    eventually(found)
