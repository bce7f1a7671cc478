"""Machines with a role each, on the same servers: each answers its own paths, and none needs its directory.

Proves: lost-role.
"""

import os
import shutil
import signal

import httpx2 as httpx
import pytest

from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    ledger_rows,
    mauve,
    mauve_json,
    running,
    stored_events,
    token_for,
)


@pytest.fixture(scope="module")
def chosen(new_installation, postgres, clickhouse, nats_server):
    return new_installation(postgres, clickhouse, nats_server)


@pytest.fixture
def machine(chosen, tmp_path):
    """Return the directory of a new machine."""

    def create(name):
        SERVERS[tmp_path / name] = chosen
        return tmp_path / name

    return create


def get(url, path, key=None):
    return httpx.get(f"{url}{path}", headers={} if key is None else bearer(key), timeout=PATIENCE_S)


def post(url, key, id_):
    body = {"name": "seen", "user": "ann", "id": id_}
    return httpx.post(f"{url}/v1/events", json=body, headers=bearer(key), timeout=PATIENCE_S).status_code


def count(api, key):
    reply = get(api.url, "/v1/metrics/event_count?name=seen", key).json()
    return sum(row["count"] for row in reply.get("data", ()))


def test_each_role_answers_its_own_paths_and_together_they_are_the_service(machine):
    with (
        running(machine("api"), "--role", "api") as api,
        running(machine("ingest"), "--role", "ingest", "--workers", "2") as ingest,
        running(machine("loader"), "--role", "loader") as loader,
        running(machine("waiting"), "--role", "loader") as waiting,
    ):
        for service in (api, ingest, loader, waiting):
            assert get(service.url, "/healthz").json() == {"ok": True}
            assert eventually(lambda service=service: get(service.url, "/readyz").json()["ok"])
        assert get(api.url, "/readyz").json()["engines"].keys() == {"catalog", "ledger", "warehouse", "keys"}
        assert get(loader.url, "/readyz").json()["engines"].keys() == {"catalog", "ledger", "log", "warehouse"}
        for url, path in (
            (api.url, "/v1/events"),
            (ingest.url, "/v1/apps"),
            (ingest.url, "/v1/metrics/mau"),
            (loader.url, "/v1/apps"),
            (loader.url, "/v1/metrics/mau"),
            (loader.url, "/v1/events"),
        ):
            assert get(url, path).status_code in {404, 405}, (url, path)
        token = token_for(machine("elsewhere"))
        app = httpx.post(f"{api.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        key = app["sk_key"]
        eventually(lambda: post(ingest.url, key, "1") == 202)
        eventually(lambda: count(api, key) == 1)
        assert httpx.get(f"{api.url}/signin", headers={"accept": "text/html"}).status_code == 200

        # A loader that dies is replaced by the other; a directory that is lost is not missed.
        pids = loader.child_pids()
        loading, other = (loader, waiting) if holder(api) == name_of(loader) else (waiting, loader)
        for pid in (loading.process.pid, *loading.child_pids().values()):
            os.kill(pid, signal.SIGKILL)
        assert pids
        shutil.rmtree(loading.data)
        assert post(ingest.url, key, "2") == 202
        eventually(lambda: count(api, key) == 2)
        assert holder(api) == name_of(other)

        # Commands work from a machine that runs nothing.
        erased = mauve_json(machine("desk"), "erase-user", "--app", app["app_id"], "--yes", "ann")
        assert erased["events"] == 2
        assert {row[2] for row in stored_events(api.data)} == {""}
        assert count(api, key) == 2


def holder(service):
    ((name,),) = ledger_rows(service.data, "SELECT holder FROM load_lease")
    return name


def name_of(service):
    return (service.data / "machine").read_text().strip()


@pytest.mark.parametrize("role", ["ingest", "api", "loader"])
def test_a_role_needs_every_engine_on_a_server(chosen, tmp_path, role):
    data = tmp_path / "data"
    SERVERS[data] = {name: value for name, value in chosen.items() if name != "MAUVE_WAREHOUSE_URL"}
    done = mauve(data, "serve", "--role", role)
    assert (done.returncode, "set MAUVE_WAREHOUSE_URL, too" in done.stderr) == (2, True), done.stderr
