"""Commands from a machine that runs no service, with a new and empty data directory: they need the addresses alone."""

import base64
import json
import random
import subprocess

import httpx2 as httpx
import pytest

from support.billing import SECRET_A
from support.clickhouse import ClickHouse
from support.nats import Nats
from support.postgres import PASSWORD, Postgres
from support.service import (
    MAUVE,
    PATIENCE_S,
    SERVERS,
    bearer,
    clean_environment,
    eventually,
    mauve,
    mauve_json,
    running,
)

KEY = base64.b64encode(bytes(32)).decode()


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def clickhouse():
    with ClickHouse() as server:
        yield server


@pytest.fixture(scope="module")
def chosen(postgres, clickhouse):
    with Nats(servers=1) as nats:
        yield {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{random.getrandbits(60)}"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create(),
            "MAUVE_MASTER_KEY": KEY,
            "MAUVE_BACKLOG_MB": "256",
            "MAUVE_READ_CACHE_SECONDS": "0",
            **nats.settings(),
        }


@pytest.fixture(scope="module")
def machine(chosen, tmp_path_factory):
    """Return the directory of a new machine, which does not exist yet."""

    def create(name, **settings):
        data = tmp_path_factory.mktemp(name) / "data"
        SERVERS[data] = chosen | settings
        return data

    return create


@pytest.fixture(scope="module")
def services(machine):
    """Two machines that serve."""
    with running(machine("one"), "--workers", "1") as one, running(machine("two"), "--role", "ingest") as two:
        yield one, two


def checks_of(data):
    done = mauve(data, "doctor", "--json")
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def send(url, key, *items):
    return httpx.post(f"{url}/v1/events", json=list(items), headers=bearer(key), timeout=PATIENCE_S).status_code


def read(service, key, metric):
    reply = httpx.get(f"{service.url}/v1/metrics/{metric}", headers=bearer(key), timeout=PATIENCE_S)
    return reply.json().get("data")


def test_organizations_users_apps_keys_and_tokens_are_managed_from_a_desk(services, machine):
    one, two = services
    org = mauve_json(machine("a"), "org", "create", "Desk")["org_id"]
    assert org in {each["org_id"] for each in mauve_json(machine("b"), "org", "list")}
    user = mauve_json(machine("c"), "user", "create", "--org", org, "--email", "d@example.com", "--role", "admin")
    assert user["link"].startswith("http")
    assert mauve(machine("c2"), "user", "list", "--org", org).returncode == 0
    app = mauve_json(machine("d"), "app", "create", "--org", org, "Desk app")
    minted = mauve_json(machine("e"), "key", "mint", "--app", app["app_id"], "--kind", "sk")
    for service in services:
        eventually(lambda service=service: send(service.ingest_url, minted["key"], {"name": "a", "user": "u"}) == 202)
    token = mauve_json(machine("f"), "token", "mint", "--org", org, "--scopes", "apps:read")
    eventually(lambda: httpx.get(f"{one.url}/v1/apps", headers=bearer(token["token"])).status_code == 200)
    mauve_json(machine("g"), "org", "suspend", org)
    eventually(lambda: send(two.ingest_url, minted["key"], {"name": "a"}) == 402)
    mauve_json(machine("h"), "org", "resume", org)
    eventually(lambda: send(two.ingest_url, minted["key"], {"name": "a"}) == 202)
    mauve_json(machine("i"), "token", "revoke", token["token_id"])
    eventually(lambda: httpx.get(f"{one.url}/v1/apps", headers=bearer(token["token"])).status_code == 401)
    mauve_json(machine("j"), "key", "revoke", "--app", app["app_id"], minted["key_id"])
    for service in services:
        eventually(lambda service=service: send(service.ingest_url, minted["key"], {"name": "a"}) == 401)


def test_an_app_is_exported_from_a_desk(services, machine, tmp_path):
    _one, two = services
    org = mauve_json(machine("a"), "org", "create", "Export")["org_id"]
    app = mauve_json(machine("b"), "app", "create", "--org", org, "Export")
    key = mauve_json(machine("c"), "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
    paid = {"name": "payment", "user": "ann", "id": "p", "props": {"amount": 5, "currency": "eur"}}
    eventually(lambda: send(two.ingest_url, key, {"name": "a", "user": "ann", "id": "☃"}, {"name": "b"}, paid) == 202)
    done = mauve(machine("d"), "export", "--app", app["app_id"])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["name"], line.get("user"), line.get("id")) for line in lines] == [
        ("a", "ann", "☃"),
        ("b", None, None),
        ("payment", "ann", "p"),
    ]
    folder = str(tmp_path / "parquet")
    command = ("export", "--app", app["app_id"], "--user", "ann", "--format", "parquet", "--output", folder)
    assert mauve_json(machine("e"), *command) == {"events": 1, "payments": 1, "subscription_versions": 0}


def test_a_person_is_erased_and_an_app_archived_restored_and_replayed_from_a_desk(services, machine, tmp_path):
    one, two = services
    org = mauve_json(machine("a"), "org", "create", "Person")["org_id"]
    app = mauve_json(machine("b"), "app", "create", "--org", org, "Person")
    key = mauve_json(machine("c"), "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
    eventually(lambda: send(two.ingest_url, key, {"name": "a", "user": "ann", "id": "1"}) == 202)
    erased = mauve_json(machine("d"), "erase-user", "--app", app["app_id"], "--yes", "ann")
    assert erased["events"] == 1
    eventually(lambda: read(one, key, "mau") == [{"mau": 1}])
    secret = mauve(machine("e"), "webhooks", "secret", "--app", app["app_id"], "--provider", "biller_a", stdin=SECRET_A)
    assert secret.returncode == 0, secret.stderr
    export = tmp_path / "export.jsonl"
    export.write_text("{}\n")
    command = ("webhooks", "replay", "--app", app["app_id"], "--provider", "biller_a", str(export))
    assert mauve_json(machine("f"), *command)["ignored"] == 1
    mauve_json(machine("g"), "app", "archive", app["app_id"])
    eventually(lambda: send(two.ingest_url, key, {"name": "a"}) == 401)
    mauve_json(machine("h"), "app", "restore", app["app_id"])
    eventually(lambda: send(two.ingest_url, key, {"name": "a"}) == 202)


def test_deleting_an_app_from_a_desk_waits_for_requests_on_other_machines(services, machine):
    """No service runs on the desk, but others may be reading a request that began before the app was archived."""
    org = mauve_json(machine("a"), "org", "create", "D")["org_id"]
    app = mauve_json(machine("a"), "app", "create", "--org", org, "D")
    desk = machine("b")
    command = [str(MAUVE), "app", "delete", app["app_id"], "--name", "D", "--data", str(desk)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment(desk)) as deleting:
        try:
            assert "waiting" in deleting.stderr.readline()
            assert deleting.poll() is None
        finally:
            deleting.kill()


def test_doctor_on_a_desk_reports_the_loader_and_every_worker(services, machine):
    one, _two = services
    status, checks = checks_of(machine("desk"))
    assert (status, [name for name, check in checks.items() if not check["ok"]]) == (0, []), checks
    holder = (one.data / "machine").read_text().strip()
    assert checks["loader"]["detail"].startswith(f"the machine {holder} is loading and renewed its lease ")
    assert checks["workers"]["detail"] == "3 processes accept events: 3 at 127.0.0.1"  # core and worker, worker
    _, own = checks_of(one.data)
    assert own["loader"]["detail"].startswith(f"this machine, {holder}, is loading")


def test_doctor_says_so_if_events_wait_and_no_machine_loads(machine, postgres, clickhouse):
    """Its own installation: events wait for longer than a loader takes to take over."""
    with Nats(servers=1) as nats:
        settings = {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{random.getrandbits(60)}"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create(),
            **nats.settings(),
        }
        data = machine("unloaded", **settings)
        with running(data, "--role", "ingest", "--workers", "1") as service:
            org = mauve_json(data, "org", "create", "Waits")["org_id"]
            app = mauve_json(data, "app", "create", "--org", org, "Waits")
            key = mauve_json(data, "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
            eventually(lambda: send(service.ingest_url, key, {"name": "a"}) == 202)
            status, checks = eventually(lambda: (found := checks_of(machine("desk", **settings)))[0] and found)
            refused = mauve(machine("restoring", **settings), "restore", "--servers")
        assert (refused.returncode, "accepts events: stop every service" in refused.stderr) == (2, True), refused.stderr
        assert (status, checks["loader"]["ok"]) == (1, False)
        assert checks["loader"]["detail"].startswith("no machine is loading; the oldest event has waited ")
        assert "--role loader" in checks["loader"]["advice"]


def test_a_backup_on_servers_names_every_command_for_this_installation_without_passwords(machine, chosen, tmp_path):
    done = mauve(machine("desk"), "backup", "--plan", str(tmp_path / "nightly"))
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout
    assert "odd%40characters" not in done.stdout
    database = chosen["MAUVE_WAREHOUSE_URL"].rpartition("/")[2]
    for part in (
        f"pg_dump --format=custom --file={tmp_path}/nightly/postgresql.dump postgresql://mauve@127.0.0.1:",
        f"BACKUP DATABASE `{database}` TO Disk('backups', 'nightly')",
        f"stream backup MAUVE-240 {tmp_path}/nightly/MAUVE-240",
        f"RESTORE DATABASE `{database}` FROM Disk('backups', 'nightly')",
        "mauve restore --servers",
    ):
        assert part in done.stdout, part
    assert len(done.stdout.splitlines()) < 30
    assert not (tmp_path / "nightly").exists()
    refused = mauve(machine("desk"), "backup", str(tmp_path / "nightly"))
    assert (refused.returncode, "mauve backup --plan" in refused.stderr) == (2, True), refused.stderr


def test_a_restore_is_not_finished_while_a_machine_loads(services, machine):
    done = mauve(machine("desk"), "restore", "--servers")
    assert (done.returncode, "stop every service" in done.stderr) == (2, True), done.stderr
