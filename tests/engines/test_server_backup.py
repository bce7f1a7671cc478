"""A backup of all servers, taken under load and restored in the documented order: nothing is lost or doubled.

Proves: server-backup.
"""

import base64
import json
import random

import httpx2 as httpx
import psycopg
import pytest

from support.clickhouse import ClickHouse
from support.nats import Nats
from support.nats_streams import delete_streams
from support.postgres import Postgres
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
    until_loaded,
)
from support.traffic import Traffic

# The tables of ClickHouse's backup are not of one moment: here the ids are copied long after the events.
MORNING_MS = 1_736_500_000_000  # on 2025-01-10
TABLES = ("mauve_installation", "events", "actives", "seen")


@pytest.fixture
def servers():
    with Postgres() as postgres, ClickHouse() as clickhouse, Nats(servers=1) as nats:
        yield postgres, clickhouse, nats


def settings_on(postgres, nats, database_url, warehouse_url):
    return {
        "MAUVE_DATABASE_URL": database_url,
        "MAUVE_WAREHOUSE_URL": warehouse_url,
        "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
        "MAUVE_BACKLOG_MB": "256",
        "MAUVE_READ_CACHE_SECONDS": "0",
        **nats.settings(),
    }


def name_of(url):
    return url.rpartition("/")[2]


def copy_tables(clickhouse, source, target, traffic):
    """Copy the warehouse table by table while it is being loaded, with more events in between."""
    for table in TABLES:
        clickhouse.query(f"BACKUP TABLE {name_of(source)}.{table} TO File('{table}')")
        wait_for_more(traffic, 20)
    for table in TABLES:
        clickhouse.query(f"RESTORE TABLE {name_of(source)}.{table} AS {name_of(target)}.{table} FROM File('{table}')")


def wait_for_more(traffic, batches):
    before = len(traffic.acked)
    assert eventually(lambda: len(traffic.acked) >= before + batches)


def positions(data):
    ((total,),) = ledger_rows(data, "SELECT coalesce(sum(number), 0) FROM load_positions")
    return int(total)


def batches_in(url, traffic):
    """Return the payments that a database holds, which name their batches."""
    with psycopg.connect(url, options="-c search_path=ledger") as connection:
        rows = connection.execute("SELECT id FROM payments").fetchall()
    found = {id_ if isinstance(id_, str) else id_.decode() for (id_,) in rows}
    return [batch for batch in traffic.acked if batch.amount and batch.ids[0] in found]


def test_what_the_log_still_holds_is_neither_lost_nor_doubled_by_a_restore(servers, tmp_path):
    postgres, clickhouse, nats = servers
    old_database, old_warehouse = postgres.create(f"old_{random.getrandbits(60)}"), clickhouse.create()
    data = tmp_path / "data"
    SERVERS[data] = settings_on(postgres, nats, old_database, old_warehouse)
    new_database, new_warehouse = postgres.create(f"new_{random.getrandbits(60)}"), clickhouse.create()
    with running(data, "--workers", "1") as service:
        with Traffic(service) as traffic:
            wait_for_more(traffic, 60)
            postgres.dump(old_database, tmp_path / "postgresql.dump")
            loaded = positions(data)
            assert eventually(lambda: positions(data) > loaded), "the warehouse becomes newer than the dump"
            wait_for_more(traffic, 20)
            copy_tables(clickhouse, old_warehouse, new_warehouse, traffic)
        until_loaded(service)
        assert service.stop() == 0
    seq_of = {row[3]: row[5] for row in stored_events(data)}
    (project,) = {row[0] for row in stored_events(data)}
    paid_before = batches_in(old_database, traffic)

    postgres.restore(new_database, tmp_path / "postgresql.dump")
    restored = tmp_path / "restored"
    SERVERS[restored] = settings_on(postgres, nats, new_database, new_warehouse)
    paid = batches_in(new_database, traffic)
    assert 0 < len(paid) < len(paid_before), "the dump is older than the last payments"
    surplus = {row[3] for row in stored_events(restored)} - {id_ for batch in paid for id_ in batch.ids}
    assert surplus, "the warehouse is newer than the dump"
    assert mauve_json(restored, "restore", "--servers")["loads_again_since"] is not None
    assert mauve_json(restored, "restore", "--servers")["loads_again_since"] is not None, "repeating it is harmless"

    with running(restored, "--workers", "1") as service:
        # Its numbers begin after those of lost batches that the warehouse has rows of.
        with Traffic(service) as later:
            wait_for_more(later, 40)
        until_loaded(service)
        assert service.stop() == 0
    rows = [row for row in stored_events(restored) if row[3]]
    of_log = {id_ for batch in traffic.acked if not batch.amount for id_ in batch.ids}
    of_dump = {id_ for batch in paid for id_ in batch.ids}
    new = {id_ for batch in later.acked for id_ in batch.ids}
    first = [row for row in rows if row[0] == project]
    ids = [row[3] for row in first]
    assert of_log | of_dump <= set(ids), "nothing that the log or the dump holds is lost"
    assert len(ids) == len(set(ids)), "nothing is stored twice"
    assert len({row[5] for row in rows}) == len(rows), "no number is used twice"
    assert all(row[4] == 1 for row in first), "everything is counted"
    assert {row[5] for row in first if row[3] in of_log} == {seq_of[id_] for id_ in of_log}
    second = [row[3] for row in rows if row[0] != project]
    assert sorted(second) == sorted(new)
    ((usage,),) = ledger_rows(restored, "SELECT coalesce(sum(events), 0) FROM usage")
    payments = sum(1 for batch in [*paid, *later.acked] if batch.amount)
    assert int(usage) == len(of_log) + len(of_dump) + len(new) + payments


def send(service, key, *names):
    items = [{"name": name, "id": name} for name in names]
    return httpx.post(f"{service.ingest_url}/v1/events", json=items, headers=bearer(key), timeout=PATIENCE_S)


def names_stored(data):
    return sorted(row[1] for row in stored_events(data) if row[4] == 1)


def test_streams_that_are_lost_or_too_old_are_refused_and_replaced_on_request(servers, tmp_path):
    """Records of a new stream must not get the numbers of loaded ones: those would never be loaded."""
    postgres, clickhouse, nats = servers
    data = tmp_path / "data"
    database = postgres.create(f"old_{random.getrandbits(60)}")
    SERVERS[data] = settings_on(postgres, nats, database, clickhouse.create())
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        key = app["sk_key"]
        for name in ("a", "b", "c"):
            assert eventually(lambda name=name: send(service, key, name).status_code == 202)
        until_loaded(service)
    with psycopg.connect(database) as connection:  # as if the streams were an older copy
        connection.execute("UPDATE ledger.load_positions SET number = number + 6400")
    with running(data, "--workers", "1") as service:
        assert "is older than what was loaded from it" in service.log()
    with Nats(servers=1) as others:
        SERVERS[data] = SERVERS[data] | others.settings()
        refused = mauve(data, "serve")
        assert (refused.returncode, "--new-streams" in refused.stderr) == (1, True), refused.stderr
        assert mauve(data, "restore", "--new-streams").returncode == 2
        replaced = mauve_json(data, "restore", "--servers", "--new-streams")["streams_replaced"]
        assert [each["loss"] for each in replaced] == ["is missing"] * 3
        for turn in ("d", "e"):
            with running(data, "--workers", "1", environment={"MAUVE_BACKLOG_MB": "300"}) as service:
                assert eventually(lambda turn=turn: send(service, key, turn).status_code == 202)
                until_loaded(service)
            if turn == "d":
                assert mauve_json(data, "restore", "--servers", "--new-streams") == {"loads_again_since": None}
        assert names_stored(data) == ["a", "b", "c", "d", "e"]
        assert len({row[5] for row in stored_events(data)}) == 5


def refusal(data, *options):
    done = mauve(data, "restore", "--servers", *options)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_new_streams_reuse_no_number_and_lose_nothing_unasked(servers, tmp_path):
    """A dump may be older than a stream's first record: it has no position for it."""
    postgres, clickhouse, nats = servers
    data, api = tmp_path / "data", tmp_path / "api"
    database = postgres.create(f"old_{random.getrandbits(60)}")
    SERVERS[data] = SERVERS[api] = settings_on(postgres, nats, database, clickhouse.create())
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        key = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()["sk_key"]
        for name in ("a", "b", "c"):
            assert eventually(lambda name=name: send(service, key, name).status_code == 202)
        until_loaded(service)
        assert "is loading" in refusal(api, "--new-streams")
    with running(api, "--role", "api"):
        assert "stop every service" in refusal(data, "--new-streams")
    with running(data, "--workers", "1", "--role", "ingest") as service:
        assert "stop every service" in refusal(api, "--new-streams")
        for name in ("lost", "lost too"):
            assert eventually(lambda name=name: send(service, key, name).status_code == 202)
    silent = mauve(data, "restore", "--servers", "--new-streams", MAUVE_STREAM_MONITOR_URL="http://127.0.0.1:9")
    assert (silent.returncode, "does not answer" in silent.stderr) == (2, True), silent.stderr
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM ledger.load_positions")
    assert mauve(data, "restore", "--servers", "--yes").returncode == 2
    kept = mauve_json(data, "restore", "--servers", "--new-streams", "--yes")
    assert kept.keys() == {"loads_again_since"}, "no stream is lost, so none is replaced"
    delete_streams(nats)
    assert len(mauve_json(data, "restore", "--servers", "--new-streams")["streams_replaced"]) == 3
    with running(data, "--workers", "1") as service:
        for name in ("d", "e", "f"):
            assert eventually(lambda name=name: send(service, key, name).status_code == 202)
        until_loaded(service)
    assert names_stored(data) == ["a", "b", "c", "d", "e", "f"]
    assert len({row[5] for row in stored_events(data)}) == 6
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM ledger.load_positions")
        connection.execute("DELETE FROM catalog.installation WHERE name = 'log_stream_ids'")
    with Nats(servers=1) as others:
        SERVERS[data] = SERVERS[data] | others.settings()
        assert "is missing" in refusal(data), "nor are new streams created without being asked for"


def write_views(path, *ids):
    path.write_text("".join(json.dumps({"name": id_, "id": id_, "user": id_, "at": MORNING_MS}) + "\n" for id_ in ids))
    return str(path)


def import_(data, app, path):
    return mauve_json(data, "import", "--app", app["app_id"], "--format", "events", path)


def mau_of(service, key):
    window = {"date_from": "2025-01-01", "date_to": "2025-01-31"}
    reply = httpx.get(f"{service.url}/v1/metrics/mau", params=window, headers=bearer(key), timeout=PATIENCE_S)
    return reply.json()["data"]


def test_an_import_that_began_after_the_dump_is_undone_and_its_number_not_used_again(servers, tmp_path):
    postgres, clickhouse, nats = servers
    data = tmp_path / "data"
    database = postgres.create(f"old_{random.getrandbits(60)}")
    SERVERS[data] = settings_on(postgres, nats, database, clickhouse.create())
    with running(data, "--workers", "1") as service:
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token_for(data))).json()
    (known,) = import_(data, app, write_views(tmp_path / "known.jsonl", "a"))
    (lost,) = import_(data, app, write_views(tmp_path / "lost.jsonl", "b", "c"))
    assert names_stored(data) == ["a", "b", "c"]
    with psycopg.connect(database) as connection:  # as in a dump that was made before the second import
        connection.execute("DELETE FROM ledger.imports WHERE number = 2")
        connection.execute("SELECT setval('ledger.imports_number_seq', 1)")
    assert (known["import"], lost["import"]) == ("import-1", "import-2")
    done = mauve_json(data, "restore", "--servers")
    assert done == {"loads_again_since": None, "imports_undone": ["import-2"]}
    assert names_stored(data) == ["a"]
    assert mauve_json(data, "restore", "--servers") == {"loads_again_since": None}, "repeating it is harmless"
    (new,) = import_(data, app, write_views(tmp_path / "new.jsonl", "d", "e", "f"))
    assert (new["import"], new["counts"]["events"]) == ("import-3", 3)
    assert names_stored(data) == ["a", "d", "e", "f"]
    with running(data, "--workers", "1") as service:
        assert eventually(lambda: mau_of(service, app["sk_key"]) == [{"mau": 4}])
