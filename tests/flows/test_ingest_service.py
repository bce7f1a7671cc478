"""From a POST to the warehouse and the ledger, through real processes."""

import json
import socket
import time

import httpx2 as httpx
import pytest

from support.service import (
    PATIENCE_S,
    bearer,
    eventually,
    ledger_rows,
    mauve,
    mauve_json,
    running,
    stored_events,
    token_for,
    two_free_ports,
    until_loaded,
)


@pytest.fixture(scope="module")
def metrics_port():
    return two_free_ports()


@pytest.fixture(scope="module")
def service(tmp_path_factory, metrics_port):
    environment = {"MAUVE_METRICS_PORT": str(metrics_port)}
    data = tmp_path_factory.mktemp("ingest") / "data"
    with running(data, "--workers", "1", environment=environment) as started:
        yield started


@pytest.fixture
def org(service):
    return mauve_json(service.data, "org", "create", "Acme")["org_id"]


@pytest.fixture
def app(service, org):
    return app_of(service, org)


def app_of(service, org):
    token = token_for(service.data, org=org)
    return httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token)).json()


def post(url, key, items, path="/v1/events"):
    return httpx.post(f"{url}{path}", json=items, headers=bearer(key))


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def counted_so_far(service):
    return ledger_rows(service.data, "SELECT coalesce(sum(events), 0) FROM usage")[0][0]


def test_events_from_both_ports_are_stored_and_counted_once(tmp_path):
    with running(tmp_path / "data", "--workers", "1") as service:
        app = app_of(service, mauve_json(service.data, "org", "create", "Acme")["org_id"])
        days = {today()}
        send_to_both_ports(service, app["sk_key"])
        days.add(today())
        assert eventually(lambda: counted_so_far(service) == 6), "five countable events and a payment"
        until_loaded(service)
        assert service.stop() == 0
    stored = stored_events(service.data)
    assert sorted((name, user, counted) for _, name, user, _, counted, _ in stored) == [
        ("bought", "ann", 1),
        ("user_signup", "bob", 1),
        ("view", "", 1),
        ("view", "", 1),
        ("view", "ann", 0),
        ("view", "ann", 1),
    ]
    assert {row[0] for row in stored} == {app["public_id"]}
    ((day, *total),) = ledger_rows(service.data, "SELECT day, currency, total FROM day_totals")
    assert day in days
    assert total == ["eur", str(2**53 - 1)]


def send_to_both_ports(service, key):
    for url in (service.url, service.ingest_url):
        assert post(url, key, [{"name": "view", "user": "ann", "id": "same"}, {"name": "view"}]).status_code == 202
    assert post(service.url, key, {"name": "user_signup", "user": "bob"}).status_code == 202
    payment = {"name": "payment", "id": "p1", "props": {"amount": 2**53 - 1, "currency": "eur"}}
    assert post(service.ingest_url, key, [payment, {"name": "bought", "user": "ann"}]).json()["accepted"] == 2


def test_the_first_event_is_shown_on_the_app(service, org, app):
    before = time.time() * 1000
    assert post(service.ingest_url, app["sk_key"], [{"name": "view"}]).status_code == 202

    def first_event_at():
        return mauve_json(service.data, "app", "list", "--org", org)[0]["first_event_at"]

    assert before - 1 <= eventually(first_event_at) <= time.time() * 1000


def test_the_cap_engages_automatically_and_the_overshoot_is_bounded(service, org, app):
    mauve_json(service.data, "org", "limits", org, "--event-cap", "50")
    accepted = 0

    def is_capped():
        nonlocal accepted
        reply = post(service.ingest_url, app["sk_key"], [{"name": "view"}] * 10)
        accepted += 10 if reply.status_code == 202 else 0
        return reply if reply.status_code == 403 else None

    reply = eventually(is_capped)
    assert reply.json()["code"] == "event_cap_reached"
    assert reply.json()["cap_events"] == 50
    assert reply.json()["resets_at"] > time.time() * 1000
    assert accepted >= 50
    mauve_json(service.data, "org", "limits", org, "--event-cap", "none")
    assert eventually(lambda: post(service.ingest_url, app["sk_key"], [{"name": "view"}]).status_code == 202)


def test_moved_times_are_reported_on_both_ports(service, app):
    for url in (service.url, service.ingest_url):
        reply = post(url, app["sk_key"], [{"name": "view"}, {"name": "view", "at": 0}])
        assert (reply.status_code, reply.headers["x-service-moved"]) == (202, "1")
        assert "x-service-moved" not in post(url, app["sk_key"], [{"name": "view"}]).headers


def test_a_suspension_and_its_end_take_effect_soon(service, org, app):
    def status():
        return post(service.ingest_url, app["sk_key"], [{"name": "view"}]).status_code

    assert status() == 202
    mauve_json(service.data, "org", "suspend", org)
    assert eventually(lambda: status() == 402)
    mauve_json(service.data, "org", "resume", org)
    assert eventually(lambda: status() == 202)


def test_a_truncated_body_is_not_accepted(service, app):
    body = json.dumps([{"name": "cut"}]).encode()
    for framing in (f"content-length: {len(body) + 50}", "transfer-encoding: chunked"):
        chunk = b"%x\r\n%s" % (len(body), body[:-1]) if "chunked" in framing else body
        head = (
            f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {app['sk_key']}\r\n"
            f"content-type: application/json\r\n{framing}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", int(service.ingest_url.rpartition(":")[2]))) as connection:
            connection.sendall(head.encode() + chunk)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(PATIENCE_S)
            assert b" 202 " not in connection.recv(1000)


def test_each_process_exposes_its_metrics_on_its_own_port(service, app, metrics_port):
    def figures(number):
        lines = httpx.get(f"http://127.0.0.1:{metrics_port + number}/metrics").text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    key, before, repeats = app["sk_key"], figures(1), figures(0).get("mauve_events_repeated", 0.0)
    post(service.ingest_url, key, [{"name": "view"}, {"name": ""}])
    worker = figures(1)
    for name in ("mauve_items_accepted_total", 'mauve_items_rejected_total{reason="name"}'):
        assert worker[name] == before.get(name, 0.0) + 1
    assert 0 < worker["mauve_log_flush_seconds"] < PATIENCE_S
    assert {"mauve_load_lag_seconds", "mauve_log_bytes"} <= figures(0).keys()
    post(service.ingest_url, key, [{"name": "view", "id": "one"}, {"name": "view", "id": "one"}])
    assert eventually(lambda: figures(0)["mauve_events_repeated"] == repeats + 1)


def test_an_occupied_metrics_port_is_reported_at_startup(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {"MAUVE_METRICS_PORT": str(port)}
        done = mauve(tmp_path / "data", "serve", "--port", "0", "--ingest-port", "0", **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port}" in done.stderr
    assert "MAUVE_METRICS_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_readiness_and_doctor_report_the_backlog(service, app):
    assert {"backlog_bytes", "load_lag_ms"} <= set(httpx.get(f"{service.url}/readyz").json())
    eventually(lambda: httpx.get(f"{service.url}/readyz").json()["backlog_bytes"] == 0)
    names = {check["name"]: check for check in mauve_json(service.data, "doctor")["checks"]}
    assert names["queue"]["ok"] is True
    assert names["queue"]["detail"].startswith("0 bytes waiting to be loaded")
    assert names["queue"]["advice"] == ""
