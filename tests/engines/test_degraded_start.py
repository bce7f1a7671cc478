"""A machine that has served its installation starts again while a server is down, and recovers when it returns.

Proves: degraded-start.
"""

import base64
import os
import secrets
import signal
from contextlib import ExitStack
from types import SimpleNamespace

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
    fixed_ports,
    mauve,
    running,
    token_for,
    until_loaded,
)
from support.tcp_relay import TcpRelay

ENGINES = {  # the engines that are unreachable while a server is down
    "postgresql": {"catalog", "ledger", "keys"},
    "nats": {"log"},
    "clickhouse": {"warehouse"},
}


@pytest.fixture(scope="module")
def servers():
    with Postgres() as postgres, ClickHouse() as clickhouse, Nats(servers=1) as nats:
        kills = {"postgresql": postgres.kill, "nats": lambda: nats.kill(0), "clickhouse": clickhouse.kill}
        starts = {"postgresql": postgres.start, "nats": lambda: nats.start(0), "clickhouse": clickhouse.start}
        yield SimpleNamespace(postgres=postgres, clickhouse=clickhouse, nats=nats, kills=kills, starts=starts)


@pytest.fixture(scope="module")
def installation(servers, new_installation, tmp_path_factory):
    """A directory that has served, and an app with an event."""
    data = tmp_path_factory.mktemp("machine") / "data"
    chosen = new_installation(servers.postgres, servers.clickhouse, servers.nats)
    SERVERS[data] = chosen | {"MAUVE_CATALOG_TIMEOUT_SECONDS": "8"}
    ports = fixed_ports()
    with running(data, "--workers", "1", *ports) as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        found = SimpleNamespace(data=data, ports=ports, token=token, key=app["sk_key"])
        eventually(lambda: send(service, found, {"name": "seen"}).status_code == 202)
        until_loaded(service)
        eventually(lambda: read(service, found).json().get("data") == [{"name": "seen", "count": 1}])
    return found


def send(service, installation, event):
    url = f"{service.url}/v1/events"
    return httpx.post(url, json=[event], headers=bearer(installation.key), timeout=PATIENCE_S)


def read(service, installation, name="seen"):
    url = f"{service.url}/v1/metrics/event_count?name={name}"
    return httpx.get(url, headers=bearer(installation.key), timeout=PATIENCE_S)


def ready(service):
    try:
        return httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S)
    except httpx.TransportError:
        return None


def check_degraded(service, installation, server):
    assert httpx.get(f"{service.url}/healthz", timeout=PATIENCE_S).status_code == 200
    answer = ready(service)
    assert answer.status_code == 503
    down = {name for name, state in answer.json()["engines"].items() if state != "ok"}
    assert down == ENGINES[server]
    assert all(name in answer.json()["reason"] for name in down)
    control = httpx.get(f"{service.url}/v1/apps", headers=bearer(installation.token), timeout=PATIENCE_S)
    payment = {"name": "payment", "id": f"p-{server}", "props": {"amount": 5, "currency": "eur"}}
    answers = {
        "control": control,
        "payment": send(service, installation, payment),
        "event": send(service, installation, {"name": "other"}),
        "read": read(service, installation, name="unread"),
    }
    failed = {name: answer.status_code for name, answer in answers.items() if answer.status_code >= 500}
    assert (
        failed
        == {
            "postgresql": {"control": 502, "payment": 503, "read": 503},
            "nats": {"event": 503},
            "clickhouse": {"read": 503},
        }[server]
    )
    assert all("retry-after" in answer.headers for answer in answers.values() if answer.status_code == 503)


def check_recovers(service, installation):
    eventually(lambda: (answer := ready(service)) is not None and answer.status_code == 200)
    eventually(lambda: send(service, installation, {"name": "late"}).status_code == 202)
    assert httpx.get(f"{service.url}/v1/apps", headers=bearer(installation.token)).status_code == 200


@pytest.mark.parametrize("server", ENGINES)
def test_a_core_that_dies_while_a_server_is_down_comes_back_degraded(servers, installation, server):
    with running(installation.data, "--workers", "1", *installation.ports) as service, ExitStack() as stack:
        eventually(lambda: ready(service).status_code == 200)
        servers.kills[server]()
        stack.callback(servers.starts[server])
        killed = service.child_pids()["core"]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: service.child_pids().get("core", killed) != killed and ready(service) is not None)
        check_degraded(service, installation, server)
        pids = service.child_pids()
        stack.close()
        check_recovers(service, installation)
        assert service.child_pids() == pids, "without a restart"


@pytest.mark.parametrize("server", ENGINES)
def test_a_directory_that_has_served_starts_degraded(servers, installation, server):
    with ExitStack() as stack:
        servers.kills[server]()
        stack.callback(servers.starts[server])
        with running(installation.data, "--workers", "1", *installation.ports) as service:
            check_degraded(service, installation, server)
            pids = service.child_pids()
            stack.close()
            check_recovers(service, installation)
            assert service.child_pids() == pids, "without a restart"


@pytest.mark.parametrize("server", ENGINES)
def test_any_other_start_is_refused(servers, new_installation, tmp_path, server):
    data = tmp_path / "data"
    SERVERS[data] = new_installation(servers.postgres, servers.clickhouse, servers.nats)
    servers.kills[server]()
    try:
        for _ in range(2):  # A start that was refused does not count as service.
            refused = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
            assert refused.returncode == 1
            assert "MAUVE_" in refused.stderr
    finally:
        servers.starts[server]()


def test_a_degraded_service_ends_if_the_server_that_returns_holds_another_database(servers, postgres, tmp_path):
    data, name = tmp_path / "data", f"own_{secrets.token_hex(8)}"
    with TcpRelay(servers.postgres.port) as own:
        url = servers.postgres.create(name).replace(str(servers.postgres.port), str(own.port))
        SERVERS[data] = {"MAUVE_DATABASE_URL": url, "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()}
        with running(data, "--workers", "1"):
            pass
    postgres.create(name)
    with running(data, "--workers", "1") as service:
        with TcpRelay(postgres.port, listen=own.port):
            assert service.process.wait(timeout=PATIENCE_S) == 1
        assert "MAUVE_DATABASE_URL names an empty database" in service.log().splitlines()[-1]
