"""Several machines of every role on the same servers: what is shared counts for all of them together.

Proves: revocation, shared-limits, event-cap, lost-role.
"""

import base64
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from mauve.access.sign_in_attempts import PAIR_BURST
from mauve.config import settings_from
from mauve.stores.limits.presence import Presence
from mauve.stores.sql.processes import beat_in_database
from mauve.wiring.databases import open_catalog_database
from support.clickhouse import ClickHouse
from support.nats import Nats
from support.nats_service import shared_events
from support.postgres import Postgres
from support.service import EVERY_SCOPE, PATIENCE_S, SERVERS, bearer, eventually, ledger_rows, mauve_json, running

RATE, WORKERS, CONNECTIONS = 400, 4, 12
BURST = 5 * RATE + 500 * (WORKERS - 1)  # A worker that joins others starts with one batch of the largest size.
CAP, BATCH, LAG_BATCHES = 200, 10, 10
PASSWORD = "a long password"


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two machines of role api, two of role ingest with two workers each, and a loader."""
    folder = tmp_path_factory.mktemp("machines")
    with Postgres() as postgres, ClickHouse() as clickhouse, Nats(servers=1) as nats, ExitStack() as stack:
        chosen = {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{random.getrandbits(60)}"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create(),
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "MAUVE_PUBLISHABLE_EVENTS_PER_SECOND": str(RATE),
            "MAUVE_BACKLOG_MB": "256",
            "MAUVE_HANG_SECONDS": "0",
            **nats.settings(),
        }

        def start(name, role):
            SERVERS[folder / name] = chosen
            options = ("--workers", "2") if role == "ingest" else ()
            return running(folder / name, "--role", role, *options)

        api = [stack.enter_context(start(f"api-{number}", "api")) for number in range(2)]
        ingest = [stack.enter_context(start(f"ingest-{number}", "ingest")) for number in range(2)]
        loader = stack.enter_context(start("loader", "loader"))
        yield SimpleNamespace(
            api=api, ingest=ingest, loader=loader, start=start, nats=nats, database=chosen["MAUVE_DATABASE_URL"]
        )


@pytest.fixture
def org(machines):
    return mauve_json(machines.api[0].data, "org", "create", "Acme")["org_id"]


@pytest.fixture
def token(machines, org):
    arguments = ("token", "mint", "--org", org, "--scopes", EVERY_SCOPE)
    return mauve_json(machines.api[0].data, *arguments)["token"]


@pytest.fixture
def app(machines, token):
    def created():
        reply = httpx.post(f"{machines.api[0].url}/v1/apps", json={"name": "App"}, headers=bearer(token), timeout=60)
        return reply.json() if reply.status_code == 201 else None

    return eventually(created)


@contextmanager
def clients_of(services, key):
    """Yield clients with a connection each, enough to reach every worker of each ingest machine."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(httpx.Client(base_url=service.ingest_url, headers=bearer(key), timeout=PATIENCE_S))
            for _ in range(CONNECTIONS)
            for service in services
        ]


def send(client, *events):
    return client.post("/v1/events", json=list(events)).status_code


def wait_until_known(clients):
    """An empty batch of a known key is refused, and counts nothing."""
    eventually(lambda: all(send(client) not in {401, 0} for client in clients))


def in_turn(calls):
    """Make calls from several threads at once; return their results."""
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda call: call(), calls))


def stop_children(service, number):
    for pid in service.child_pids().values():
        os.kill(pid, number)


@contextmanager
def stopped(*services):
    for service in services:
        stop_children(service, signal.SIGSTOP)
    try:
        yield
    finally:
        for service in services:
            stop_children(service, signal.SIGCONT)


def test_a_publishable_key_has_one_rate_over_all_workers_of_all_machines(machines, app, token):
    url = f"{machines.api[0].url}/v1/apps/{app['app_id']}/keys"
    key = httpx.post(url, json={"kind": "pk"}, headers=bearer(token), timeout=PATIENCE_S).json()["key"]
    with clients_of(machines.ingest, key) as clients:
        eventually(lambda: all(send(client) != 401 for client in clients))
        began_at, statuses = time.monotonic(), []
        limited = set()
        while len(limited) < len(clients):
            for number, client in enumerate(clients):
                statuses.append(send(client, *[{"name": "seen"}] * BATCH))
                limited |= {number} if statuses[-1] == 429 else set()
            assert time.monotonic() - began_at < PATIENCE_S
        elapsed_s = time.monotonic() - began_at
    assert set(statuses) == {202, 429}
    assert statuses.count(202) * BATCH <= RATE * (elapsed_s + 1) + BURST


def test_workers_know_how_many_of_them_use_a_limit(machines, app, token):
    url = f"{machines.api[0].url}/v1/apps/{app['app_id']}/keys"
    key = httpx.post(url, json={"kind": "pk"}, headers=bearer(token), timeout=PATIENCE_S).json()["key"]
    settings = settings_from({"MAUVE_DATA": str(machines.api[0].data), **SERVERS[machines.api[0].data]})
    with ExitStack() as stack:
        database = stack.enter_context(closing(open_catalog_database(settings)))
        observer = stack.enter_context(
            closing(Presence(partial(beat_in_database, database, "observer.0"), is_local=False))
        )

        def users(clients):
            for client in clients:
                send(client, {"name": "seen"})
            return observer.use()

        with machines.start("ingest-that-dies", "ingest") as dying:
            clients = stack.enter_context(clients_of([*machines.ingest, dying], key))
            eventually(lambda: users(clients) == 3 + WORKERS)
            kill(dying)
        clients = stack.enter_context(clients_of(machines.ingest, key))
        eventually(lambda: users(clients) == 1 + WORKERS)


def kill(service):
    pids = [service.process.pid, *service.child_pids().values()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    service.process.wait(timeout=PATIENCE_S)


def test_a_cap_holds_over_machines_of_which_one_died_while_nothing_is_loaded(machines, org, app):
    mauve_json(machines.api[0].data, "org", "limits", org, "--event-cap", str(CAP))
    # A worker that knows this key knows the cap, which was published before it.
    arguments = ("key", "mint", "--app", app["app_id"], "--kind", "sk")
    key = mauve_json(machines.api[0].data, *arguments)["key"]
    batch = [{"name": "seen"}] * BATCH
    with stopped(machines.loader), clients_of(machines.ingest, key) as clients:
        wait_until_known(clients)
        accepted = 0
        with machines.start("ingest-that-is-lost", "ingest") as lost:
            with clients_of([lost], key) as its_clients:
                wait_until_known(its_clients)
                for client in its_clients[: CAP // 2 // BATCH]:
                    assert send(client, *batch) == 202
                    accepted += BATCH
            eventually(lambda: shared_events(machines.api[0].data) == accepted)
            kill(lost)
            shutil.rmtree(lost.data)
        refused = 0
        while refused < len(clients):
            for client in clients:
                status = send(client, *batch)
                accepted += BATCH if status == 202 else 0
                refused = refused + 1 if status == 403 else 0
                assert accepted <= CAP + (WORKERS + LAG_BATCHES) * BATCH
                time.sleep(0.5 if status == 202 else 0)
        assert accepted >= CAP
    counted = f"SELECT sum(events) FROM usage WHERE org_id = '{org}'"
    eventually(lambda: ledger_rows(machines.api[0].data, counted) == [(accepted,)])
    with clients_of(machines.ingest, key) as clients:
        assert {send(client, *batch) for client in clients} == {403}, "loading changes nothing about the sum"


def read(service, credential, **parameters):
    url = f"{service.url}/v1/metrics/revenue"
    return httpx.get(url, params=parameters, headers=bearer(credential), timeout=PATIENCE_S)


def days(count):
    today = datetime.now(UTC).date()
    return [str(today - timedelta(days=number)) for number in range(count)]


def test_an_allowance_is_exact_over_both_machines(machines, org, app, token):
    allowance = 15
    mauve_json(machines.api[0].data, "org", "limits", org, "--agent-queries", str(allowance))
    wait_until_published(machines, app)
    calls = [
        lambda api=api, day=day: read(api, token, project=app["public_id"], date_from=day)
        for day in days(20)
        for api in machines.api
    ]
    replies = in_turn(calls)
    assert [reply.status_code for reply in replies].count(200) == allowance
    refused = [reply.json() for reply in replies if reply.status_code != 200]
    assert {(each["reason"], each["reset_at"]) for each in refused} == {("allowance", refused[0]["reset_at"])}
    again = [call() for call, reply in zip(calls, replies, strict=True) if reply.status_code == 200]
    assert {(reply.status_code, reply.headers["x-cache"]) for reply in again} == {(200, "hit")}


def wait_until_published(machines, app):
    """Return a new key once both machines know it, and with it everything that was published before."""
    key = mauve_json(machines.api[0].data, "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
    eventually(lambda: all(read(api, key, date_from="garbage").status_code == 400 for api in machines.api))
    return key


def test_reads_per_minute_are_counted_over_both_machines(machines, org, app):
    mauve_json(machines.api[0].data, "org", "limits", org, "--reads-per-minute", "10")
    key = wait_until_published(machines, app)
    began_at = time.monotonic()
    calls = [
        lambda api=api, day=day: read(api, key, date_from=day).status_code for day in days(15) for api in machines.api
    ]
    statuses = in_turn(calls)
    minutes = 1 + int((time.monotonic() - began_at) / 60)
    assert set(statuses) == {200, 429}
    assert 10 <= statuses.count(200) <= 10 * minutes


def browse(service):
    """Return a client that acts as a browser on a page of this machine."""
    return httpx.Client(
        base_url=service.url, headers={"accept": "text/html", "sec-fetch-site": "same-origin"}, timeout=PATIENCE_S
    )


def new_link(machines, org, email):
    arguments = ("user", "create", "--org", org, "--email", email, "--role", "owner")
    return urlsplit(mauve_json(machines.api[0].data, *arguments)["link"]).path


def test_a_link_is_used_once_and_a_session_belongs_to_both_machines(machines, org):
    email = f"ann-{random.getrandbits(40)}@example.com"
    link = new_link(machines, org, email)
    with browse(machines.api[0]) as one, browse(machines.api[1]) as two:
        replies = in_turn([lambda each=each: each.post(link, data={"password": PASSWORD}) for each in (one, two) * 3])
        winner, *losers = sorted(replies, key=lambda reply: reply.status_code)
        assert winner.status_code == 303
        for loser in losers:  # 400: both had found the link unused before one of them used it
            assert loser.status_code in {400, 404}
            assert "set-cookie" not in loser.headers
        assert one.post(link, data={"password": PASSWORD}).status_code == 404
        one.cookies.clear()
        two.cookies.clear()
        assert one.post("/signin", data={"email": email, "password": PASSWORD}).status_code == 303
        two.cookies.update(one.cookies)
        assert two.get("/account").status_code == one.get("/account").status_code == 200
        assert two.post("/signout", data={"": ""}).status_code == 303
        assert one.get("/account").status_code == 303, "signed out at once on the other machine"


def test_password_attempts_are_counted_over_both_machines(machines):
    form = {"email": f"bob-{random.getrandbits(40)}@example.com", "password": "a wrong password"}
    began_at = time.monotonic()
    with browse(machines.api[0]) as one, browse(machines.api[1]) as two:
        statuses = [each.post("/signin", data=form).status_code for _ in range(PAIR_BURST) for each in (one, two)]
    minutes = 1 + int((time.monotonic() - began_at) / 60)
    assert set(statuses) == {400, 429}
    assert PAIR_BURST <= statuses.count(400) <= PAIR_BURST + minutes


def check_refused(client, attempt, answered_at):
    """Check that no request which begins more than a second after the revocation is accepted.

    A process that answers slowly also learns slowly: it has ten of its own round trips in addition.
    """
    slowest_s = 0.0
    while True:
        asked_at = time.monotonic()
        client.get("/healthz")
        began_at = time.monotonic()
        slowest_s = max(slowest_s, began_at - asked_at)
        status = attempt()
        if began_at - answered_at > 1 + 10 * slowest_s:
            assert status == 401
            return
        time.sleep(0.05)


def test_a_key_is_minted_and_revoked_for_every_machine(machines, app, token):
    one, two = (f"{api.url}/v1/apps/{app['app_id']}/keys" for api in machines.api)
    minted = httpx.post(one, json={"kind": "sk"}, headers=bearer(token), timeout=PATIENCE_S).json()
    key = minted["key"]
    with clients_of(machines.ingest, key) as clients:
        wait_until_known(clients)
        eventually(lambda: all(read(api, key).status_code == 200 for api in machines.api))
        gone = httpx.delete(f"{two}/{minted['key_id']}", headers=bearer(token), timeout=PATIENCE_S)
        answered_at = time.monotonic()
        assert gone.status_code == 204
        attempts = [(client, partial(send, client, {"name": "late"})) for client in clients]
        with ExitStack() as stack:
            for api in machines.api:
                client = stack.enter_context(httpx.Client(base_url=api.url, timeout=PATIENCE_S))
                attempts.append((client, lambda api=api: read(api, key).status_code))
            in_turn([partial(check_refused, *attempt, answered_at) for attempt in attempts])


def test_a_token_is_revoked_for_every_machine(machines, org, app):
    arguments = ("token", "mint", "--org", org, "--scopes", EVERY_SCOPE)
    minted = mauve_json(machines.api[0].data, *arguments)
    urls = [f"{api.url}/v1/apps" for api in machines.api]
    token = bearer(minted["token"])
    assert [httpx.get(url, headers=token, timeout=PATIENCE_S).status_code for url in urls] == [200, 200]
    wanted = {"project": app["public_id"]}
    eventually(lambda: all(read(api, minted["token"], **wanted).status_code == 200 for api in machines.api))
    mauve_json(machines.api[0].data, "token", "revoke", minted["token_id"])
    assert [httpx.get(url, headers=token, timeout=PATIENCE_S).status_code for url in urls] == [401, 401]
    eventually(lambda: all(read(api, minted["token"], **wanted).status_code == 401 for api in machines.api))


def test_a_client_that_changes_machines_may_see_a_newer_answer_and_then_an_older_one(machines, app):
    key = app["sk_key"]
    one, two = machines.api

    def pay(number):
        payment = {"name": "payment", "id": f"pay-{number}", "props": {"amount": 500, "currency": "eur"}}
        with clients_of(machines.ingest[:1], key) as (client, *_):
            wait_until_known([client])
            assert send(client, payment) == 202

    def seen(api):
        reply = read(api, key)
        return reply.headers["x-cache"], sum(row["revenue"] for row in reply.json()["data"])

    pay(1)
    first = seen(one)
    pay(2)
    assert first[0] == "miss"
    assert seen(one) == ("hit", first[1]), "the client that stays sees its answer until it expires"
    newer = seen(two)
    assert newer == ("miss", 2 * first[1])
    assert seen(two) == ("hit", newer[1])
    assert seen(one) == ("hit", first[1]), "each machine has a cache of its own"
