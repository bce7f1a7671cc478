"""`mauve doctor` and `mauve backup` with engines on servers: each sentence fits the servers that are set.

Proves: doctor.
"""

import json
import re
import secrets
from dataclasses import replace

import psycopg
import pytest

from mauve.config import settings_from
from mauve.server.doctor import run_checks
from mauve.stores.log.nats.messages import RECORD_BYTES_MAX
from mauve.stores.log.nats.streams import STREAMS, subject_of
from mauve.wiring.bootstrap import prepare
from support.nats_streams import info_of, publish
from support.service import SERVERS, clean_environment, mauve

ADDRESSES = {
    "MAUVE_DATABASE_URL": "postgresql://mauve:canary@127.0.0.1:1/mauve",
    "MAUVE_WAREHOUSE_URL": "clickhouse://mauve:canary@127.0.0.1:1/mauve",
    "MAUVE_STREAM_URL": "nats://mauve:canary@127.0.0.1:1",
}
NEED_POSTGRESQL = [
    "master key",
    "catalog",
    "connections",
    "queue",
    "window",
    "loader",
    "workers",
    "warehouse",
    "raw events",
    "clock",
]
NEED = {
    "MAUVE_DATABASE_URL": ("PostgreSQL", NEED_POSTGRESQL),
    "MAUVE_WAREHOUSE_URL": ("ClickHouse", ["warehouse"]),
    "MAUVE_STREAM_URL": ("NATS", ["queue", "window", "loader", "workers"]),
}


@pytest.fixture(scope="module")
def chosen(new_installation, postgres, clickhouse, nats_server):
    return new_installation(postgres, clickhouse, nats_server)


@pytest.fixture
def data(chosen, tmp_path):
    """The directory of an installation on servers."""
    data = tmp_path / "data"
    SERVERS[data] = dict(chosen)
    prepare(replace(settings_from(clean_environment(data)), data=data))  # as a start does
    return data


def diagnose(data, **environment):
    """Return the status, and each check by its name."""
    done = mauve(data, "doctor", "--json", **environment)
    assert "canary" not in done.stdout + done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def bad_of(checks):
    return [name for name, check in checks.items() if not check["ok"]]


def test_all_is_well_even_from_a_machine_without_a_data_directory(data, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    SERVERS[elsewhere] = SERVERS[data]
    for directory in (data, elsewhere):
        status, checks = diagnose(directory)
        assert (status, bad_of(checks)) == (0, []), checks
        assert checks["server"]["detail"] == "no service runs on this directory"
        assert checks["warehouse"]["detail"].startswith("on ClickHouse at 127.0.0.1")
    assert not elsewhere.exists()


def test_the_connections_of_the_database_server_are_shown_against_its_limit(data):
    _, checks = diagnose(data)
    used, allowed = re.match(r"(\d+) of (\d+) connections", checks["connections"]["detail"]).groups()
    assert 0 < int(used) < int(allowed)


@pytest.mark.parametrize("setting", ADDRESSES)
def test_a_server_that_is_away_is_named_once_with_its_setting(data, setting):
    status, checks = diagnose(data, **{setting: ADDRESSES[setting]})
    server, left_out = NEED[setting]
    assert (status, bad_of(checks)) == (1, [server]), checks
    assert checks[server]["detail"] == f"cannot be used; not checked: {', '.join(left_out)}"
    assert setting in checks[server]["advice"]
    assert "check " in checks[server]["advice"]
    assert checks.keys().isdisjoint(left_out)
    assert "backup" not in json.dumps(checks)


def test_the_warehouse_of_another_installation_is_found(data, clickhouse):
    url = clickhouse.create()
    clickhouse.query("CREATE TABLE mauve_installation (a UInt8) ENGINE = Memory COMMENT 'b'", url.rpartition("/")[2])
    status, checks = diagnose(data, MAUVE_WAREHOUSE_URL=url)
    assert (status, bad_of(checks)) == (1, ["warehouse"])
    assert "belongs to another installation" in checks["warehouse"]["advice"]
    assert "name the database of this installation" in checks["warehouse"]["advice"]


def test_an_empty_warehouse_is_found(data, clickhouse):
    status, checks = diagnose(data, MAUVE_WAREHOUSE_URL=clickhouse.create())
    assert (status, bad_of(checks)) == (1, ["warehouse"])
    assert "MAUVE_WAREHOUSE_URL" in checks["warehouse"]["advice"]


def test_an_empty_database_is_one_finding_that_names_what_to_run(chosen, postgres, tmp_path):
    files, nothing = tmp_path / "files", tmp_path / "nothing"
    assert mauve(files, "org", "create", "Acme").returncode == 0
    url = postgres.create(f"empty_{secrets.token_hex(8)}")
    for data, advice in ((files, "'mauve move'"), (nothing, "start 'mauve serve'")):
        SERVERS[data] = {**chosen, "MAUVE_DATABASE_URL": url}
        status, checks = diagnose(data)
        assert (status, bad_of(checks)) == (1, ["installation"]), checks
        assert advice in checks["installation"]["advice"]


def test_a_loader_that_fails_differs_from_none(data, postgres):
    with psycopg.connect(SERVERS[data]["MAUVE_DATABASE_URL"]) as connection:
        expires = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint + %s"
        for left_ms, is_named in ((-60_000, False), (-1000, True)):
            connection.execute(f"UPDATE ledger.load_lease SET holder = NULL, expires_at = {expires}", [left_ms])
            connection.commit()
            detail = diagnose(data)[1]["loader"]["detail"]
            assert ("may be failing" in detail) == is_named, detail
        connection.execute(f"UPDATE ledger.load_lease SET holder = 'abc-box', expires_at = {expires}", [600_000])
        connection.commit()
        assert "the machine abc-box is loading" in diagnose(data)[1]["loader"]["detail"]
        connection.execute("UPDATE ledger.load_lease SET holder = NULL")


@pytest.mark.parametrize("setting", ADDRESSES)
def test_an_address_that_was_used_must_stay_set(data, chosen, setting):
    del SERVERS[data][setting]
    done = mauve(data, "org", "create", "Again")
    (sentence,) = done.stderr.splitlines()
    assert (done.returncode, setting in sentence) == (1, True), sentence
    assert mauve(data, "org", "list", **{setting: chosen[setting]}).returncode == 0


def test_the_queue_on_nats_is_full_when_a_stream_has_used_its_share(data, nats_server):
    publish(nats_server, subject_of(STREAMS[0]), bytes(1000))
    used = max(info_of(nats_server, stream).state.bytes for stream in STREAMS)
    settings = replace(settings_from(clean_environment(data)), data=data)
    for share, is_full in ((2 * used, False), (used // 2, True)):
        limited = replace(settings, backlog_bytes_max=(share + RECORD_BYTES_MAX) * len(STREAMS))
        (queue,) = (each for each in run_checks(limited) if each.name == "queue")
        assert (queue.ok, "events are refused" in queue.advice) == (not is_full, is_full), share


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("MAUVE_DATABASE_URL",), "pg_dump for PostgreSQL, and copy the data directory"),
        (("MAUVE_WAREHOUSE_URL",), "BACKUP for ClickHouse, and copy the data directory"),
        (("MAUVE_STREAM_URL",), "'nats stream backup' for NATS, and copy the data directory"),
    ],
)
def test_a_backup_names_the_command_for_each_server_that_is_set(tmp_path, settings, says):
    data = tmp_path / "data"
    assert mauve(data, "org", "create", "Acme").returncode == 0
    key = {"MAUVE_MASTER_KEY": (data / "master.key").read_text().strip()}
    done = mauve(data, "backup", str(tmp_path / "file"), **key, **{name: ADDRESSES[name] for name in settings})
    assert done.returncode == 2
    assert done.stderr == f"mauve: some engines are on servers and some in files: stop the service, use {says}\n"
