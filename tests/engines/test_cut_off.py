"""A machine that is cut off from NATS, or from PostgreSQL, while another goes on.

Proves: revocation, expendable.
"""

import base64
import itertools
import random
import time
from contextlib import ExitStack
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from support.billing import SECRET_A, sample_bytes, signed_a
from support.clickhouse import ClickHouse
from support.nats import Nats
from support.postgres import Postgres
from support.service import (
    EVERY_SCOPE,
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    ledger_rows,
    mauve,
    mauve_json,
    running,
)
from support.tcp_relay import TcpRelay

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """One machine for the control plane, and one of every role, whose connections to the servers can be cut."""
    folder = tmp_path_factory.mktemp("machines")
    with (
        Postgres() as postgres,
        ClickHouse() as clickhouse,
        Nats(servers=1) as nats,
        TcpRelay(nats.ports[0]) as to_nats,
        TcpRelay(postgres.port) as to_postgres,
        ExitStack() as stack,
    ):
        direct = {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{random.getrandbits(60)}"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create(),
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "MAUVE_BACKLOG_MB": "256",
            "MAUVE_HANG_SECONDS": "0",
            **nats.settings(),
        }
        relayed = direct | {
            "MAUVE_STREAM_URL": nats.url.replace(str(nats.ports[0]), str(to_nats.port)),
            "MAUVE_DATABASE_URL": direct["MAUVE_DATABASE_URL"].replace(str(postgres.port), str(to_postgres.port)),
            "MAUVE_CATALOG_TIMEOUT_SECONDS": "8",
        }
        SERVERS[folder / "control"], SERVERS[folder / "cut"] = direct, relayed
        control = stack.enter_context(running(folder / "control", "--role", "api"))
        cut = stack.enter_context(running(folder / "cut", "--workers", "1"))
        yield SimpleNamespace(control=control, cut=cut, to_nats=to_nats, to_postgres=to_postgres)


@pytest.fixture
def account(machines):
    """An app with two keys and two tokens, of which one of each will be revoked; all known to the machine."""
    data = machines.control.data
    org = mauve_json(data, "org", "create", "Acme")["org_id"]
    token, other_token = (mauve_json(data, "token", "mint", "--org", org, "--scopes", EVERY_SCOPE) for _ in range(2))
    url = f"{machines.control.url}/v1/apps"
    app = httpx.post(url, json={"name": "App"}, headers=bearer(token["token"]), timeout=PATIENCE_S).json()
    mint = ("key", "mint", "--app", app["app_id"], "--kind", "sk")
    key, other_key = (mauve_json(data, *mint) for _ in range(2))
    found = SimpleNamespace(app=app, key=key, other_key=other_key, token=token, other_token=other_token)
    for each in (key, other_key):
        eventually(lambda each=each: pay(machines.cut, each["key"]).status_code == 202)
        eventually(lambda each=each: read(machines.cut, each["key"]).status_code == 200)
    for each in (token, other_token):
        eventually(lambda each=each: read(machines.cut, each["token"], project=app["public_id"]).status_code == 200)
    return found


def pay(machine, key):
    payment = {"name": "payment", "id": f"pay-{next(NUMBERS)}", "props": {"amount": 500, "currency": "eur"}}
    return httpx.post(f"{machine.ingest_url}/v1/events", json=[payment], headers=bearer(key), timeout=PATIENCE_S)


def view(machine, key):
    event = {"name": "view", "id": f"view-{next(NUMBERS)}"}
    return httpx.post(f"{machine.ingest_url}/v1/events", json=[event], headers=bearer(key), timeout=PATIENCE_S)


def subscribe(machine, key):
    version = {"type": "subscription", "id": f"sub-{next(NUMBERS)}", "status": "active", "mrr": 500, "currency": "eur"}
    return httpx.post(f"{machine.ingest_url}/v1/objects", json=[version], headers=bearer(key), timeout=PATIENCE_S)


def read(machine, credential, **parameters):
    url = f"{machine.url}/v1/metrics/revenue"
    return httpx.get(url, params=parameters, headers=bearer(credential), timeout=PATIENCE_S)


def count_events(machine, token, project):
    """Read what the warehouse can answer alone."""
    url, wanted = f"{machine.url}/v1/metrics/event_count", {"project": project, "name": "seen"}
    return httpx.get(url, params=wanted, headers=bearer(token), timeout=PATIENCE_S)


def revoke(machines, account):
    """Revoke a key and a token in the catalog, and return the time at which that was answered."""
    data = machines.control.data
    mauve_json(data, "key", "revoke", "--app", account.app["app_id"], account.key["key_id"])
    mauve_json(data, "token", "revoke", account.token["token_id"])
    return time.monotonic()


def payments_of(account):
    return f"SELECT count(*) FROM payments WHERE project = '{account.app['public_id']}'"


def test_the_second_machine_prints_no_set_up_link_that_would_replace_the_first(machines):
    assert machines.cut.setup_link is None
    for machine in (machines.control, machines.cut):
        url = machine.url + urlsplit(machines.control.setup_link).path
        assert httpx.get(url, headers={"accept": "text/html"}, timeout=PATIENCE_S).status_code == 200


def test_a_machine_without_nats_accepts_nothing_with_a_revoked_key(machines, account):
    cut, project = machines.cut, account.app["public_id"]
    stored = ledger_rows(machines.control.data, payments_of(account))
    machines.to_nats.cut()
    try:
        revoked_at = revoke(machines, account)
        for _ in range(3):
            assert pay(cut, account.key["key"]).status_code == 401
            assert subscribe(cut, account.key["key"]).status_code == 401
        assert ledger_rows(machines.control.data, payments_of(account)) == stored
        assert read(cut, account.key["key"], date_from="2026-01-01").status_code == 401, "no cache has this answer"
        assert read(cut, account.token["token"], project=project, date_from="2026-01-01").status_code == 401
        time.sleep(max(0.0, revoked_at + 1 - time.monotonic()))
        assert view(cut, account.key["key"]).status_code == 401, "although the log might be within reach"
        assert read(cut, account.key["key"]).status_code == 401, "the cache has this answer"
        assert read(cut, account.token["token"], project=project).status_code == 401
        assert pay(cut, account.other_key["key"]).status_code == 202, "other keys go on"
        assert subscribe(cut, account.other_key["key"]).status_code == 202
        assert read(cut, account.other_key["key"]).status_code == 200
        assert read(cut, account.other_token["token"], project=project).status_code == 200
    finally:
        machines.to_nats.mend()
    eventually(lambda: httpx.get(f"{cut.url}/readyz", timeout=PATIENCE_S).status_code == 200)
    assert pay(cut, account.key["key"]).status_code == 401


def test_a_machine_without_nats_accepts_no_delivery_that_is_signed_with_a_replaced_secret(machines, account):
    cut, project = machines.cut, account.app["public_id"]
    body = sample_bytes("stripe_unmapped_invoice_payment_succeeded")

    def replace_secret(secret):
        command = ("webhooks", "secret", "--app", account.app["app_id"], "--provider", "biller_a")
        done = mauve(machines.control.data, *command, stdin=secret)
        assert done.returncode == 0, done.stderr

    def deliver(secret):
        url = f"{cut.ingest_url}/v1/webhooks/biller_a/{project}"
        headers = {"content-type": "application/json", **signed_a(body, secret, int(time.time()))}
        return httpx.post(url, content=body, headers=headers, timeout=PATIENCE_S)

    replace_secret(SECRET_A)
    eventually(lambda: deliver(SECRET_A).status_code == 200)
    machines.to_nats.cut()
    try:
        eventually(lambda: httpx.get(f"{cut.ingest_url}/readyz", timeout=PATIENCE_S).status_code == 503)
        assert deliver(SECRET_A).status_code == 200, "a current one goes on"
        replace_secret("whsec_another")
        assert deliver(SECRET_A).status_code == 401
    finally:
        machines.to_nats.mend()
    eventually(lambda: deliver("whsec_another").status_code == 200)
    assert deliver(SECRET_A).status_code == 401


def test_a_machine_without_both_accepts_nothing(machines, account):
    cut, project = machines.cut, account.app["public_id"]
    machines.to_nats.cut()
    machines.to_postgres.cut()
    try:
        time.sleep(1)
        replies = [
            pay(cut, account.key["key"]),
            subscribe(cut, account.key["key"]),
            read(cut, account.key["key"]),
            read(cut, account.token["token"], project=project),
        ]
        assert [(reply.status_code, reply.headers["retry-after"]) for reply in replies] == [(503, "1")] * 4
    finally:
        machines.to_nats.mend()
        machines.to_postgres.mend()
    eventually(lambda: pay(cut, account.key["key"]).status_code == 202)


def test_a_read_that_the_shared_meter_cannot_count_is_not_made(machines, account):
    cut, project = machines.cut, account.app["public_id"]
    machines.to_postgres.cut()
    try:
        hit = read(cut, account.token["token"], project=project)
        refused = count_events(cut, account.token["token"], project)
    finally:
        machines.to_postgres.mend()
    assert (hit.status_code, hit.headers["x-cache"]) == (200, "hit")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    eventually(lambda: count_events(cut, account.token["token"], project).status_code == 200)
