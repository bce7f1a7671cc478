"""The service on PostgreSQL: what it promises while the server fails, and what it refuses at start.

Proves: postgresql-down, lost-commit, bad-server.
"""

import base64
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from urllib.parse import quote

import httpx2 as httpx
import psycopg
import pytest
import sqlalchemy as sa

from mauve.config import settings_from
from mauve.load.lease import TTL_S
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger.loading import LeaseStore
from mauve.stores.ledger.schema import load_lease
from mauve.stores.sql.dialects import CONNECTIONS_MAX
from mauve.wiring.databases import open_catalog_database, open_lease_database, open_ledger_database
from support.postgres import PASSWORD, Postgres
from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    ledger_rows,
    mauve,
    mauve_json,
    running,
    token_for,
    until_known,
    until_loaded,
)
from support.tcp_relay import TcpRelay
from support.traffic import Traffic

ANSWER_S_MAX = 20.0  # of a request while an engine hangs; measured by the client, so with room for a busy machine
A_PAYMENT = {"name": "payment", "id": "p1", "props": {"amount": 5, "currency": "eur"}}


@pytest.fixture(scope="module")
def own_server():
    """A server that tests may kill."""
    with Postgres() as server:
        yield server


def data_on(server, tmp_path, name="data"):
    data = tmp_path / name
    SERVERS[data] = {
        "MAUVE_DATABASE_URL": server.create(f"own_{random.getrandbits(60)}"),
        "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
        "MAUVE_CATALOG_TIMEOUT_SECONDS": "4",
    }
    return data


def test_after_kills_of_the_server_under_load_each_acknowledged_item_is_counted_once(own_server, tmp_path):
    chance = random.Random(20261116)
    with running(data_on(own_server, tmp_path), "--workers", "2") as service:
        # A server that dies while it commits answers neither yes nor no: such a batch may be stored or not.
        with Traffic(service, is_disk_sound=False) as traffic:
            for _ in range(5):
                before = len(traffic.acked)
                eventually(lambda before=before: len(traffic.acked) > before + 20)
                time.sleep(chance.uniform(0, 0.5))
                own_server.kill()
                own_server.start()
            before = len(traffic.acked)
            eventually(lambda: len(traffic.acked) > before + 20)
        figures = traffic.figures_when_loaded(service)
        assert service.stop() == 0
        traffic.check(service, figures)


def test_while_the_server_is_away_events_are_accepted_and_everything_else_says_so(own_server, tmp_path):
    with running(data_on(own_server, tmp_path), "--workers", "1") as service:
        token = token_for(service.data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        key = bearer(app["sk_key"])
        until_known(service, app["sk_key"])
        own_server.kill()
        try:
            event = httpx.post(f"{service.ingest_url}/v1/events", json={"name": "seen", "id": "1"}, headers=key)
            assert event.status_code == 202
            payment = httpx.post(f"{service.ingest_url}/v1/events", json=A_PAYMENT, headers=key, timeout=PATIENCE_S)
            assert (payment.status_code, "retry-after" in payment.headers) == (503, True)
            control = httpx.get(f"{service.url}/v1/apps", headers=bearer(token), timeout=PATIENCE_S)
            assert control.status_code == 502
            assert httpx.get(f"{service.url}/healthz").status_code == 200
            assert httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S).status_code == 503
        finally:
            own_server.start()
        eventually(lambda: httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S).status_code == 200)
        retried = httpx.post(f"{service.ingest_url}/v1/events", json=A_PAYMENT, headers=key, timeout=PATIENCE_S)
        assert retried.status_code == 202
        assert httpx.get(f"{service.url}/v1/apps", headers=bearer(token)).status_code == 200
        until_loaded(service)
        names = httpx.get(f"{service.url}/v1/metrics/event_count?name=seen", headers=key).json()["data"]
        assert names == [{"name": "seen", "count": 1}]
        assert ledger_rows(service.data, "SELECT id FROM payments") == [("p1",)]


def test_a_commit_whose_answer_is_lost_is_called_unconfirmed_and_can_be_repeated(own_server, tmp_path):
    data = data_on(own_server, tmp_path)
    with TcpRelay(own_server.port) as relay:
        url = SERVERS[data]["MAUVE_DATABASE_URL"]
        SERVERS[data]["MAUVE_DATABASE_URL"] = url.replace(str(own_server.port), str(relay.port))
        with running(data, "--workers", "1") as service:
            token = token_for(data)
            app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()

            def pay():
                url, key = f"{service.ingest_url}/v1/events", bearer(app["sk_key"])
                return httpx.post(url, json=A_PAYMENT, headers=key, timeout=PATIENCE_S)

            until_known(service, app["sk_key"])
            relay.lose_answer(b"INSERT INTO payments", to=b"COMMIT")
            lost = pay()
            assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
            assert "nothing was stored" not in lost.json()["error"]
            assert "same id" in lost.json()["error"]
            assert pay().status_code == 202
            assert ledger_rows(data, "SELECT id FROM payments") == [("p1",)]
            relay.lose_answer(b"INSERT INTO apps", to=b"COMMIT")
            changed = httpx.post(f"{service.url}/v1/apps", json={"name": "Two"}, headers=bearer(token))
            assert (changed.status_code, changed.json()["error"]["code"]) == (502, "upstream_unavailable")
            assert "may have been made" in changed.json()["error"]["message"]


def test_everything_in_a_process_that_opens_a_database_shares_its_connections(on_postgres):
    data = on_postgres()
    mauve_json(data, "org", "create", "Acme")
    settings = settings_from({**SERVERS[data], "MAUVE_DATA": str(data)})
    connected = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'mauve %' AND datname = current_database()"
    )
    openers = [
        *(open_catalog_database, partial(open_catalog_database, statement_s=60)),
        *(open_ledger_database, partial(open_ledger_database, statement_s=60), partial(open_ledger_database, idle_s=4)),
    ] * 3
    with ExitStack() as stack:
        databases = [stack.enter_context(closing(open_database(settings))) for open_database in openers]
        for database in databases:
            with database.writing():
                pass
        assert ledger_rows(data, connected) == [(2,)], "one of the catalog, one of the ledger"
        for database in databases[:-1]:
            database.close()
        with databases[-1].reading() as tx:
            assert tx.execute(sa.select(sa.literal(1))).scalar_one() == 1
    eventually(lambda: ledger_rows(data, connected) == [(0,)])


def test_the_limits_of_a_transaction_stay_its_own(on_postgres):
    data = on_postgres()
    mauve_json(data, "org", "create", "Acme")
    settings = settings_from({**SERVERS[data], "MAUVE_DATA": str(data)})

    def limits_of(tx):
        names = ("statement_timeout", "idle_in_transaction_session_timeout")
        shown = [tx.execute(sa.select(sa.func.current_setting(name))).scalar_one() for name in names]
        return *shown, tx.connection.driver_connection.wait_s, tx.connection.driver_connection.info.backend_pid

    with (
        closing(open_ledger_database(settings, statement_s=60)) as patient,
        closing(open_ledger_database(settings)) as hasty,
    ):
        with patient.writing() as tx:
            *limits, pid = limits_of(tx)
        assert limits == ["1min", "63s", 63]
        with patient.reading() as tx:
            assert limits_of(tx) == ("1min", "63s", 63, pid)
        with hasty.reading() as tx:
            assert limits_of(tx) == ("8s", "11s", 11, pid)
        assert patient.empty_journal(1)
        with hasty.writing() as tx:
            *limits, _ = limits_of(tx)
        assert limits == ["8s", "11s", 11]


def test_the_lease_is_renewed_while_others_use_every_connection_of_the_pool(on_postgres):
    data = on_postgres()
    mauve_json(data, "org", "create", "Acme")
    settings = settings_from({**SERVERS[data], "MAUVE_DATA": str(data)})
    with ExitStack() as opened:
        ledger = opened.enter_context(closing(open_ledger_database(settings)))
        lease = LeaseStore(opened.enter_context(closing(open_lease_database(settings, TTL_S))))
        for _ in range(CONNECTIONS_MAX):
            opened.enter_context(ledger.reading())
        turn = lease.acquire("one", TTL_S)
        assert lease.renew(turn, TTL_S)


def test_the_connections_of_other_roles_are_counted(own_server, tmp_path):
    data = data_on(own_server, tmp_path, "counted")
    settings = settings_from({**SERVERS[data], "MAUVE_DATA": str(data)})
    with closing(open_catalog_database(settings)) as database, ExitStack() as others:
        before, allowed = database.connections()
        for _ in range(20):
            others.enter_context(psycopg.connect(own_server.address("postgres", "postgres")))
        eventually(lambda: database.connections()[0] >= before + 20)
        assert allowed == 397


def test_a_server_that_hangs_delays_no_answer_for_long(own_server, tmp_path):
    with running(data_on(own_server, tmp_path), "--workers", "1") as service:
        token = token_for(service.data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        key = bearer(app["sk_key"])
        until_known(service, app["sk_key"])
        answers = {}

        def ask(name, method, url, **more):
            began = time.monotonic()
            status = httpx.request(method, url, timeout=PATIENCE_S, **more).status_code
            answers[name] = (status, time.monotonic() - began)

        own_server.freeze()
        try:
            asking = [
                threading.Thread(target=ask, args=arguments, kwargs=more)
                for arguments, more in [
                    (("payment", "POST", f"{service.ingest_url}/v1/events"), {"json": A_PAYMENT, "headers": key}),
                    (("control", "GET", f"{service.url}/v1/apps"), {"headers": bearer(token)}),
                    (("revenue", "GET", f"{service.url}/v1/metrics/revenue"), {"headers": key}),
                    (("mau", "GET", f"{service.url}/v1/metrics/mau"), {"headers": key}),
                    (("ready", "GET", f"{service.url}/readyz"), {}),
                    (("event", "POST", f"{service.ingest_url}/v1/events"), {"json": {"name": "seen"}, "headers": key}),
                ]
            ]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
        finally:
            own_server.thaw()
        statuses = {name: status for name, (status, _) in answers.items()}
        reads = {"revenue": 503, "mau": 503, "ready": 503}
        assert statuses == {"payment": 503, "control": 502, "event": 202, **reads}
        assert max(took for _, took in answers.values()) < ANSWER_S_MAX, answers
        eventually(lambda: httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S).status_code == 200)
        assert httpx.get(f"{service.url}/v1/apps", headers=bearer(token), timeout=PATIENCE_S).status_code == 200


def test_three_processes_that_start_at_once_on_an_empty_database_migrate_it_once(postgres, tmp_path):
    settings = {
        "MAUVE_DATABASE_URL": postgres.create("started_thrice"),
        "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
    }
    folders = [tmp_path / str(number) for number in range(3)]
    SERVERS.update(dict.fromkeys(folders, settings))
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda folder: mauve(folder, "org", "list"), folders))
    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"host": "127.0.0.1:1"}, "refused"),
        ({"database": "absent"}, "does not exist"),
        ({"host": "host.invalid"}, "host.invalid"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_a_sentence(postgres, tmp_path, change, says):
    password = quote(change.get("password", PASSWORD), safe="")
    host = change.get("host", f"127.0.0.1:{postgres.port}")
    SERVERS[tmp_path / "data"] = {
        "MAUVE_DATABASE_URL": f"postgresql://mauve:{password}@{host}/{change.get('database', 'template_of_mauve')}",
        "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
    }
    done = mauve(tmp_path / "data", "serve", "--port", "0", "--ingest-port", "0")
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("mauve: PostgreSQL at MAUVE_DATABASE_URL cannot be used: ")
    assert says in sentence
    assert "check that it is running, and check MAUVE_DATABASE_URL (host, port, user, password, database)" in sentence
    assert password not in sentence
    assert "wrong" not in sentence


def test_the_address_may_name_several_servers_of_which_the_one_that_writes_is_used(postgres, tmp_path):
    """The first is away, the second a standby, which only reads, as far as a client can see."""
    with Postgres("pginstall18") as standby:
        data = data_on(postgres, tmp_path)
        place, _, database = SERVERS[data]["MAUVE_DATABASE_URL"].rpartition("/")
        standby.create(database)
        with psycopg.connect(standby.address("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        credential = place.rpartition("@")[0]
        several = f"{credential}@127.0.0.1,127.0.0.1,127.0.0.1/{database}"
        several += f"?port=1,{standby.port},{postgres.port}&target_session_attrs=read-write"
        mauve_json(data, "org", "create", "Acme")
        SERVERS[data]["MAUVE_DATABASE_URL"] = several
        assert [each["name"] for each in mauve_json(data, "org", "list")] == ["Acme"]
        mauve_json(data, "org", "create", "Bright")


def test_a_server_that_may_lose_data_is_refused(tmp_path):
    with Postgres("pginstall18", "fsync=off") as unsafe:
        data = data_on(unsafe, tmp_path)
        done = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
    assert (done.returncode, "set fsync" in done.stderr) == (1, True), done.stderr


def test_the_database_of_another_installation_is_refused(on_postgres):
    first, second = on_postgres(), on_postgres()
    for data in (first, second):
        mauve_json(data, "org", "create", "Acme")
    SERVERS[first]["MAUVE_DATABASE_URL"] = SERVERS[second]["MAUVE_DATABASE_URL"]
    assert "master key does not match" in mauve(first, "org", "list").stderr
    SERVERS[first]["MAUVE_MASTER_KEY"] = SERVERS[second]["MAUVE_MASTER_KEY"]
    done = mauve(first, "org", "list")
    assert (done.returncode, "different installations" in done.stderr) == (1, True), done.stderr


def test_an_embedded_installation_is_not_left_behind_for_an_empty_database(on_postgres):
    data = on_postgres()
    settings = SERVERS.pop(data)
    key = {"MAUVE_MASTER_KEY": settings["MAUVE_MASTER_KEY"]}
    assert mauve(data, "org", "create", "Acme", **key).returncode == 0
    done = mauve(data, "org", "list", **settings)
    assert (done.returncode, "mauve move" in done.stderr) == (1, True), done.stderr
    assert mauve(data, "org", "list", **key).returncode == 0


def test_a_server_without_a_master_key_in_the_settings_is_refused(on_postgres):
    data = on_postgres()
    del SERVERS[data]["MAUVE_MASTER_KEY"]
    done = mauve(data, "serve")
    assert (done.returncode, "MAUVE_MASTER_KEY" in done.stderr) == (2, True), done.stderr


def test_the_settings_may_come_from_files(on_postgres, tmp_path):
    data = on_postgres()
    for name, value in SERVERS.pop(data).items():
        (tmp_path / name).write_text(f"{value}\n")
        SERVERS.setdefault(data, {})[f"{name}_FILE"] = str(tmp_path / name)
    assert mauve_json(data, "org", "create", "Acme")["org_id"]


def test_a_loader_that_is_paused_within_a_transaction_keeps_no_other_from_the_lease(on_postgres):
    data = on_postgres()
    mauve_json(data, "org", "create", "Acme")
    settings = settings_from({**SERVERS[data], "MAUVE_DATA": str(data)})
    with (
        closing(open_ledger_database(settings, idle_s=1)) as paused,
        closing(open_ledger_database(settings)) as other,
    ):
        turn = LeaseStore(paused).acquire("paused", ttl_s=0)

        def lock_it_and_pause():
            with paused.writing() as tx:
                tx.execute(sa.update(load_lease).values(intent=None))
                assert LeaseStore(other).acquire("other", ttl_s=60).epoch == turn.epoch + 1

        with pytest.raises(StoreUnavailableError):
            lock_it_and_pause()
        assert not LeaseStore(paused).renew(turn, ttl_s=60)
