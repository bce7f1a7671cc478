"""Settings that would leave data behind, or mix the data of two machines, are refused with a sentence."""

import base64
import os
import secrets
import signal

import pytest

from support.service import (
    PATIENCE_S,
    SERVERS,
    eventually,
    freeze,
    mauve,
    mauve_json,
    post_events,
    running,
    stored_events,
    until_loaded,
)

SERVE = ("serve", "--port", "0", "--ingest-port", "0", "--workers", "1")


@pytest.fixture
def data(tmp_path):
    SERVERS[tmp_path / "data"] = {
        "MAUVE_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "MAUVE_BACKLOG_MB": "256",
    }
    return tmp_path / "data"


def refused(data, *says):
    done = mauve(data, *SERVE)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for text in says:
        assert text in done.stderr, done.stderr


def test_the_warehouse_is_not_left_behind_on_its_server(data, postgres, clickhouse):
    on_servers = {"MAUVE_DATABASE_URL": postgres.create("left_w"), "MAUVE_WAREHOUSE_URL": clickhouse.create()}
    SERVERS[data] |= on_servers
    mauve_json(data, "org", "create", "Acme")
    del SERVERS[data]["MAUVE_WAREHOUSE_URL"]
    refused(data, "on ClickHouse", "set MAUVE_WAREHOUSE_URL")
    assert not (data / "warehouse").exists()
    SERVERS[data] |= on_servers
    with running(data, "--workers", "1") as service:
        assert service.stop() == 0


def test_the_catalog_is_not_left_behind_on_its_server(data, postgres):
    mauve_json(data, "org", "create", "Acme")
    SERVERS[data]["MAUVE_DATABASE_URL"] = postgres.create("left_c")
    assert mauve(data, "move").returncode == 0
    url = SERVERS[data].pop("MAUVE_DATABASE_URL")
    refused(data, "on PostgreSQL", "set MAUVE_DATABASE_URL")
    assert not (data / "catalog.db").exists()
    SERVERS[data]["MAUVE_DATABASE_URL"] = url
    assert [org["name"] for org in mauve_json(data, "org", "list")] == ["Acme"]


def test_a_start_that_is_refused_leaves_nothing_to_move(data, postgres, clickhouse):
    SERVERS[data]["MAUVE_WAREHOUSE_URL"] = clickhouse.url("a%20name%20that%20is%20not%20created")
    refused(data, "MAUVE_WAREHOUSE_URL", "create it")
    assert not list(data.glob("*.db"))
    SERVERS[data] |= {"MAUVE_DATABASE_URL": postgres.create("left_n"), "MAUVE_WAREHOUSE_URL": clickhouse.create()}
    mauve_json(data, "org", "create", "Acme")


def test_a_move_that_is_given_up_leaves_the_installation_as_it_was(data, postgres, clickhouse, nats_server):
    mauve_json(data, "demo", "--days", "3")
    chosen = SERVERS[data]
    SERVERS[data] = chosen | nats_server.settings() | {"MAUVE_WAREHOUSE_URL": clickhouse.create()}
    refused(data, "mauve move")
    SERVERS[data] |= {"MAUVE_WAREHOUSE_URL": clickhouse.url("a%20name%20that%20is%20not%20created")}
    assert mauve(data, "move", MAUVE_DATABASE_URL=postgres.create("left_m")).returncode == 1
    SERVERS[data] = chosen
    with running(data, "--workers", "1") as service:
        assert service.stop() == 0


def test_a_second_machine_is_refused_while_the_first_has_a_local_log(data, postgres, clickhouse, nats_server, tmp_path):
    other = tmp_path / "other"
    SERVERS[data] |= {"MAUVE_DATABASE_URL": postgres.create("left_t"), "MAUVE_WAREHOUSE_URL": clickhouse.create()}
    SERVERS[other] = SERVERS[data]
    with running(data, "--workers", "1") as first:
        mauve_json(data, "org", "create", "Acme")
        key = mauve_json(data, "app", "create", "App")["sk_key"]
        name = (data / "machine").read_text().strip()
        refused(other, name, "MAUVE_STREAM_URL", "mauve move")
        freeze(first.child_pids()["core"])  # so that nothing is loaded
        eventually(lambda: post_events(first.ingest_url, key) == 202)
        for pid in (first.process.pid, *first.child_pids().values()):
            os.kill(pid, signal.SIGKILL)
        first.process.wait(timeout=PATIENCE_S)
    SERVERS[data] = SERVERS[other] = SERVERS[data] | nats_server.settings()
    refused(other, name)
    refused(data, "local log", "mauve move")
    done = mauve(data, "move")
    assert (done.returncode, "loading the local log" in done.stderr) == (0, True), done.stderr
    assert (data / "log.moved").is_dir()
    assert not (data / "log").exists()
    assert len(stored_events(data)) == 1
    with running(other, "--workers", "1") as second, running(data, "--workers", "1") as first:
        for service in (first, second):
            eventually(lambda service=service: post_events(service.ingest_url, key) == 202)
        until_loaded(second)
        assert "lost" not in mauve(data, "doctor").stdout
    assert len(stored_events(data)) == 3


def test_a_machine_whose_directory_is_lost_can_be_replaced(data, postgres, tmp_path):
    SERVERS[data]["MAUVE_DATABASE_URL"] = postgres.create("left_r")
    with running(data, "--workers", "1"):
        name = (data / "machine").read_text().strip()
    new = tmp_path / "new"
    SERVERS[new] = SERVERS[data]
    refused(new, str(new / "machine"), name)
    (new / "machine").write_text(f"{name}\n")
    with running(new, "--workers", "1") as service:
        assert service.stop() == 0


def test_a_move_that_cannot_load_the_local_log_is_refused(data, nats_server):
    with running(data, "--workers", "1") as service:
        mauve_json(data, "org", "create", "Acme")
        key = mauve_json(data, "app", "create", "App")["sk_key"]
        freeze(service.child_pids()["core"])
        eventually(lambda: post_events(service.ingest_url, key) == 202)
        for pid in (service.process.pid, *service.child_pids().values()):
            os.kill(pid, signal.SIGKILL)
        service.process.wait(timeout=PATIENCE_S)
    (data / "warehouse").rename(data / "elsewhere")
    (data / "warehouse").write_text("not a directory")
    done = mauve(data, "move", **nats_server.settings())
    assert (done.returncode, "could not be loaded completely" in done.stderr) == (2, True), done.stderr
    assert (data / "log").is_dir()
    (data / "warehouse").unlink()
    (data / "elsewhere").rename(data / "warehouse")
    with running(data, "--workers", "1") as service:
        until_loaded(service)
    assert len(stored_events(data)) == 1
