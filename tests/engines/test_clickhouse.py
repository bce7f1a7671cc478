"""The warehouse on a ClickHouse server: what it promises while the server fails, and what is refused at start.

Proves: clickhouse-down, bad-server, readiness.
"""

import base64
import itertools
import os
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx2 as httpx
import pytest

from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.stores import ForeignDataError, NewerSchemaError, UnsupportedServerError
from mauve.stores.warehouse import EventRows, RowsRefusedError, WarehouseUnavailableError, first_seq
from mauve.stores.warehouse.schema import KEPT_TABLES, clustered, kept_tables
from mauve.stores.warehouse.server import warehouse as server_warehouse
from mauve.stores.warehouse.server.schema import SCHEMA_VERSION, check_server, migrate
from mauve.stores.warehouse.server.server import address_from, open_for_loading, open_for_maintenance
from mauve.stores.warehouse.server.warehouse import SYNC_REPLICA, ServerWarehouse
from support.clickhouse import PASSWORD, ClickHouse
from support.service import PATIENCE_S, SERVERS, bearer, eventually, mauve, running, token_for, until_loaded
from support.traffic import Traffic

ANSWER_S_MAX = 20.0  # of a request while an engine hangs; measured by the client, so with room for a busy machine
REFUSAL_S_MAX = 45.0
NOON = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
KEY = base64.b64encode(bytes(32)).decode()
VERIFY = Path(__file__).parents[2] / "deploy" / "verify-clickhouse"
record_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    """A server that tests may kill."""
    with ClickHouse() as opened:
        yield opened


@pytest.fixture
def address(server):
    made = address_from(Secret(server.create()))
    migrate(made, "an installation")
    return made


@pytest.fixture
def open_loader(address):
    """Open the loader's side repeatedly, as several machines do."""
    opened = []

    def open_one():
        opened.append(open_for_loading(address))
        return ServerWarehouse(opened[-1])

    yield open_one
    for connection in opened:
        connection.close()


def rows_of(count=3, moment=NOON, number=None):
    rows = EventRows()
    rows.project += ["proj"] * count
    rows.name.extend(["view"] * count)
    rows.received_at.extend([moment] * count)
    rows.occurred_at.extend([moment - place * 40 * DAY_MS for place in range(count)])
    rows.user.extend([f"user {place}" for place in range(count)])
    rows.id.extend([f"id {place}" for place in range(count)])
    first = first_seq(7, number or next(record_numbers))
    rows.seq.extend(range(first, first + count))
    for column in (rows.claimed_at, rows.props):
        column.extend_empty(count)
    return rows


def stored(server, address):
    """Return how many events and ids are stored."""
    return tuple(int(server.query(f"SELECT count() FROM {table}", address.database)) for table in ("events", "seen"))


def data_on(server, tmp_path):
    data = tmp_path / "data"
    SERVERS[data] = {"MAUVE_WAREHOUSE_URL": server.create(), "MAUVE_MASTER_KEY": KEY}
    return data


class TestExactlyOnce:
    def test_the_late_commit_of_a_zombie_stores_nothing_twice(self, server, address, open_loader):
        rows, zombie, loader = rows_of(), open_loader(), open_loader()
        for each in (zombie, loader):
            each.stage(rows)
        for each in (loader, zombie, zombie):
            each.commit((), (), "240:1-2")
        assert stored(server, address) == (3, 3)

    def test_what_a_failed_commit_has_not_stored_is_stored_by_the_next_one_of_the_same_range(
        self, server, address, open_loader
    ):
        rows, loader = rows_of(), open_loader()
        loader.stage(rows)
        loader.commit((), rows.seq[1:], "240:1-2")  # as if it had failed after the first partition
        assert stored(server, address) == (1, 1)
        loader.stage(rows)
        loader.commit((), (), "240:1-2")
        assert stored(server, address)[0] == 3

    def test_a_log_that_was_created_again_may_repeat_the_name_of_a_range(self, server, address, open_loader):
        loader = open_loader()
        for moment in (NOON, NOON + 1):
            loader.stage(rows_of(moment=moment, number=99))
            loader.commit((), (), "240:1-2")
        assert stored(server, address)[0] == 6

    @pytest.mark.parametrize("range_name", ["", "240:1-2"])
    def test_a_commit_long_after_staging_is_refused(self, server, address, open_loader, monkeypatch, range_name):
        loader = open_loader()
        with monkeypatch.context() as late:
            late.setattr(server_warehouse, "COMMIT_S_MAX", -1)
            loader.stage(rows_of())
        with pytest.raises(WarehouseUnavailableError, match="too long ago"):
            loader.commit((), (), range_name)
        assert stored(server, address) == (0, 0)

    def test_a_restart_of_the_server_between_stage_and_commit_stores_nothing(self, server, address, open_loader):
        rows, loader = rows_of(), open_loader()
        loader.stage(rows)
        server.kill()
        server.start()
        with pytest.raises(WarehouseUnavailableError):
            loader.commit((), (), "240:1-2")
        assert stored(server, address) == (0, 0)
        loader.stage(rows)
        loader.commit((), (), "240:1-2")
        assert stored(server, address) == (3, 3)

    def test_two_loaders_never_share_staged_rows(self, server, address, open_loader):
        first, second = open_loader(), open_loader()
        first.stage(rows_of(2))
        second.stage(rows_of(3))
        first.commit((), (), "one")
        assert stored(server, address)[0] == 2
        second.commit((), (), "another")
        assert stored(server, address)[0] == 5

    def test_ids_that_another_loader_has_counted_are_found_after_recovery(self, open_loader):
        first, second = open_loader(), open_loader()
        for each in (first, second):
            each.stage(rows_of(1))
            each.commit((), (), "")
        second.stage(rows_of(3))
        second.commit((), (), "")
        first.forget_ids()
        assert sorted(place for same in first.stage(rows_of(3)) for place in same.places) == [0, 1, 2]

    def test_ids_are_not_read_again_for_each_look_at_the_stored_rows(self, open_loader):
        loader = open_loader()
        loader.stage(rows_of(3))
        loader.commit((), (), "")
        known_bytes = loader._seen.filter_bytes  # noqa: SLF001 - reading them takes seconds, which only the filters show
        loader.stored_after({7: 0})
        assert loader._seen.filter_bytes == known_bytes > 0  # noqa: SLF001
        loader.forget_ids()
        assert loader._seen.filter_bytes == 0  # noqa: SLF001

    def test_a_statement_that_outlives_its_client_stores_nothing_twice(self, server, address, open_loader):
        """A frozen server runs what it has received once it wakes up, when its client has long given up."""
        rows, zombie, loader = rows_of(), open_loader(), open_loader()
        zombie.stage(rows)
        loader.stage(rows)
        zombie._connection._client.timeout = 0.5  # noqa: SLF001 - instead of waiting as long as the product does
        server.freeze()
        try:
            with pytest.raises(WarehouseUnavailableError, match="does not answer"):
                zombie.commit((), (), "240:1-2")
        finally:
            server.thaw()
        loader.commit((), (), "240:1-2")
        eventually(lambda: stored(server, address)[0] >= 3)
        zombie.ping()
        assert stored(server, address)[0] == 3


def test_an_error_tells_no_value_of_a_row(address):
    with closing(open_for_loading(address)) as connection:
        with pytest.raises(RowsRefusedError) as refused:
            connection.run("SELECT toUInt8('a-persons-name')")
        with pytest.raises(WarehouseUnavailableError) as failed:
            connection.run("SELECT throwIf(1, 'a-persons-name')")
    assert "name" not in str(refused.value) + str(failed.value)


def test_settings_of_the_server_cannot_weaken_an_insert(server, address):
    """Inserts that are deferred or unrecognized by default would be lost, or stored twice."""
    with closing(open_for_loading(address)) as connection:
        shown = dict(connection.read("SELECT name, value FROM system.settings WHERE changed", {}))
    assert (shown["async_insert"], shown["insert_deduplicate"]) == ("0", "0")
    with closing(open_for_maintenance(address)) as connection:
        shown = dict(connection.read("SELECT name, value FROM system.settings WHERE changed", {}))
    assert (shown["mutations_sync"], shown["log_queries"]) == ("2", "0")


def test_a_refused_statement_keeps_the_session_and_its_staged_rows(server, address, open_loader):
    """A new session after every refusal would leave the rows of the old ones in the server's memory."""
    loader = open_loader()
    loader.stage(rows_of())
    with pytest.raises(WarehouseUnavailableError):
        loader._connection.run("SELECT * FROM no_such_table")  # noqa: SLF001 - on its own session
    loader.commit((), (), "240:1-2")
    assert stored(server, address) == (3, 3)


def test_the_statements_for_a_cluster_are_valid(server):
    """Only a real cluster can run them: see `deploy/verify-clickhouse`."""
    for statement in kept_tables(clustered("name-of.cluster")):
        quoted = statement.replace("\\", "\\\\").replace("'", "\\'")
        written = server.query(f"SELECT formatQuerySingleLine('{quoted}')")
        if written.startswith("CREATE"):
            assert "ON CLUSTER `name-of.cluster`" in written
            assert "ENGINE = Replicated" in written
            assert "min_compressed_bytes_to_fsync_after_fetch = 1" in written


def test_a_takeover_waits_for_inserts_of_other_replicas_but_not_for_merges_or_mutations(server, address):
    """The engine here has no replicas: it parses the statement, finds the table, and refuses only because of that."""
    for table in KEPT_TABLES:
        written = server.query(f"SELECT formatQuerySingleLine('{SYNC_REPLICA.format(table=table)}')")
        assert written.strip() == f"SYSTEM SYNC REPLICA {table} LIGHTWEIGHT"
    with closing(open_for_loading(address)) as connection:
        loader = ServerWarehouse(connection, is_replicated=True)
        for sync in (loader.forget_ids, lambda: loader.stored_after({7: 0})):
            with pytest.raises(WarehouseUnavailableError, match="BAD_ARGUMENTS, code 36"):
                sync()


@pytest.mark.parametrize(("change", "status"), [({}, 0), ({"password": "mistaken"}, 1)])
def test_a_server_is_verified_by_the_script_for_operators(server, change, status):
    before = server.query("SHOW DATABASES")
    settings = {**os.environ, "MAUVE_WAREHOUSE_URL": server.url("default", **change)}
    done = subprocess.run([sys.executable, VERIFY], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, "FAILED" in done.stdout, done.stderr) == (status, bool(status), "")
    assert ("everything is cleaned up" in done.stdout) is (status == 0), "there is nothing to clean up otherwise"
    assert ("SYSTEM SYNC REPLICA … LIGHTWEIGHT" in done.stdout) is (status == 0)
    assert server.query("SHOW DATABASES") == before


class TestPreparing:
    def test_the_database_of_another_installation_is_refused(self, address):
        migrate(address, "an installation")
        with pytest.raises(ForeignDataError, match="MAUVE_WAREHOUSE_URL belongs to another installation"):
            migrate(address, "another installation")

    def test_the_tables_of_another_program_are_refused(self, server):
        foreign = address_from(Secret(server.create()))
        server.query("CREATE TABLE events (a UInt8) ENGINE = Memory", foreign.database)
        with pytest.raises(ForeignDataError, match="or program"):
            migrate(foreign, "an installation")

    def test_the_tables_of_a_newer_release_are_refused(self, server, address):
        newer = f"INSERT INTO mauve_installation (schema_version) SELECT {SCHEMA_VERSION + 1}"
        server.query(newer, address.database)
        with pytest.raises(NewerSchemaError, match="newer release"):
            migrate(address, "an installation")

    def test_the_tables_of_a_newer_release_that_suit_this_one_are_used_as_they_are(self, server, address):
        newer = f"INSERT INTO mauve_installation SELECT {SCHEMA_VERSION + 1}, now(), {SCHEMA_VERSION}"
        server.query(newer, address.database)
        migrate(address, "an installation")
        (version,) = server.query("SELECT max(schema_version) FROM mauve_installation", address.database).split()
        assert version == str(SCHEMA_VERSION + 1)

    def test_a_cluster_that_the_server_does_not_know_is_refused(self, address):
        with pytest.raises(UnsupportedServerError, match="has no cluster 'nowhere'"):
            check_server(address_from(Secret(f"{url_of(address)}?cluster=nowhere")))

    def test_tables_that_are_not_replicated_are_refused_for_a_cluster(self, address):
        with pytest.raises(UnsupportedServerError, match=r"have a different schema: leave out \?cluster"):
            migrate(address_from(Secret(f"{url_of(address)}?cluster=nowhere")), "an installation")

    @pytest.mark.parametrize("query", ["?secure=1", "?cluster=a`b", "?cluster="])
    def test_an_unknown_option_of_the_url_is_refused(self, query):
        with pytest.raises(UnsupportedServerError, match="MAUVE_WAREHOUSE_URL"):
            address_from(Secret(f"clickhouse://u:p@host/db{query}"))


def url_of(address):
    secret = quote(address.password.reveal(), safe="")
    return f"clickhouse://{address.user}:{secret}@{address.host}:{address.port}/{address.database}"


class TestService:
    """The service with its warehouse on the server, and everything else embedded."""

    def test_after_kills_of_the_server_under_load_each_acknowledged_event_is_counted_once(self, server, tmp_path):
        chance = random.Random(20261116)
        with running(data_on(server, tmp_path), "--workers", "2") as service:
            with Traffic(service) as traffic:
                for _ in range(4):
                    before = len(traffic.acked)
                    eventually(lambda before=before: len(traffic.acked) > before + 20)
                    time.sleep(chance.uniform(0, 0.5))
                    server.kill()
                    server.start()
            figures = traffic.figures_when_loaded(service)
            assert service.stop() == 0
            traffic.check(service, figures)

    def test_a_server_that_hangs_delays_no_answer_and_counts_nothing_twice(self, server, tmp_path):
        with running(data_on(server, tmp_path), "--workers", "1") as service:
            with Traffic(service) as traffic:
                eventually(lambda: len(traffic.acked) > 20)
                until_loaded(service)
                server.freeze()
                try:
                    before = len(traffic.acked)
                    status, took_s = ask(f"{service.url}/v1/metrics/event_count?name=view", traffic.key)
                    assert status == 503
                    assert took_s < ANSWER_S_MAX
                    eventually(lambda: len(traffic.acked) > before + 20)
                    eventually(lambda: "load_failed" in service.log())
                finally:
                    server.thaw()
            figures = traffic.figures_when_loaded(service)
            assert ask(f"{service.url}/v1/metrics/event_count?name=view", traffic.key)[0] == 200
            assert service.stop() == 0
            traffic.check(service, figures)

    def test_while_the_server_is_away_events_are_accepted_and_reads_say_so(self, server, tmp_path):
        with running(data_on(server, tmp_path), "--workers", "1") as service:
            app = new_app(service)
            read = f"{service.url}/v1/metrics/event_count?name=seen"
            until_loaded(service)
            server.kill()
            try:
                ready = httpx.get(f"{service.url}/readyz", timeout=PATIENCE_S)
                assert ready.json()["engines"]["warehouse"] == "unreachable", "although nothing is loaded"
                assert send(service, app, "ann") == 202
                assert ask(read, app["sk_key"])[0] == 503
                eventually(lambda: ask(f"{service.url}/readyz", "")[0] == 503)
                assert ask(f"{service.url}/healthz", "")[0] == 200
                assert ask(f"{service.url}/drainz", "")[0] == 200, "a balancer keeps it"
            finally:
                server.start()
            eventually(lambda: ask(f"{service.url}/readyz", "")[0] == 200)
            until_loaded(service)
            answer = httpx.get(read, headers=bearer(app["sk_key"]), timeout=PATIENCE_S).json()["data"]
            assert answer == [{"name": "seen", "count": 1}]
            assert not (service.data / "warehouse").exists(), "the embedded engine was never opened"

    def test_a_person_is_erased_and_the_server_never_learns_the_name(self, server, tmp_path):
        data = data_on(server, tmp_path)
        database = SERVERS[data]["MAUVE_WAREHOUSE_URL"].rpartition("/")[2]
        with running(data, "--workers", "1") as service:
            app = new_app(service)
            for user in ("ann-of-secret", "bob"):
                assert send(service, app, user) == 202
            done = mauve(data, "erase-user", "--app", app["app_id"], "ann-of-secret", "--yes")
            assert done.returncode == 0, done.stderr
        assert server.query("SELECT user FROM events ORDER BY user", database) == "\nbob\n"
        assert "ann-of-secret" not in server.query("SELECT command FROM system.mutations", database)

    def test_a_backup_is_refused_and_names_what_to_use(self, server, tmp_path):
        data = data_on(server, tmp_path)
        assert mauve(data, "org", "create", "Acme").returncode == 0
        done = mauve(data, "backup", str(tmp_path / "backup.tar"))
        assert (done.returncode, "BACKUP" in done.stderr) == (2, True), done.stderr


class TestRefusals:
    """Each is one sentence, which tells no password."""

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"password": "mistaken"}, "user or password is wrong"),
            ({"host": "127.0.0.1:1"}, "does not answer"),
            ({"host": "host.invalid"}, "does not answer"),
            ({"database": "no%20name"}, "create it"),
        ],
    )
    def test_a_server_that_cannot_be_used(self, server, tmp_path, change, says):
        secret = quote(change.get("password", PASSWORD), safe="")
        host = change.get("host", f"127.0.0.1:{server.port}")
        url = f"clickhouse://mauve:{secret}@{host}/{change.get('database', 'default')}"
        SERVERS[tmp_path / "data"] = {"MAUVE_WAREHOUSE_URL": url, "MAUVE_MASTER_KEY": KEY}
        sentence = refusal(tmp_path / "data")
        assert sentence.startswith("mauve: ClickHouse at MAUVE_WAREHOUSE_URL cannot be used: ")
        assert says in sentence
        assert secret not in sentence

    def test_a_missing_database_is_created_but_never_in_place_of_a_known_one(self, server, tmp_path):
        data, place = tmp_path / "data", server.create().rpartition("/")[0]
        SERVERS[data] = {"MAUVE_WAREHOUSE_URL": f"{place}/created-at-first", "MAUVE_MASTER_KEY": KEY}
        assert mauve(data, "org", "create", "Acme").returncode == 0
        assert "mauve_installation" in server.query("SHOW TABLES", "created-at-first")
        SERVERS[data]["MAUVE_WAREHOUSE_URL"] = f"{place}/mistyped"
        assert "the database does not exist: check its name" in refusal(data)
        assert "mistyped" not in server.query("SHOW DATABASES", "default")

    def test_a_server_that_hangs(self, server, tmp_path):
        data = data_on(server, tmp_path)
        server.freeze()
        try:
            assert "does not answer" in refusal(data)
        finally:
            server.thaw()

    def test_the_warehouse_of_another_installation(self, server, tmp_path):
        first, second = tmp_path / "first", tmp_path / "second"
        shared = {"MAUVE_WAREHOUSE_URL": server.create(), "MAUVE_MASTER_KEY": KEY}
        SERVERS.update({first: shared, second: shared})
        assert mauve(first, "org", "create", "Acme").returncode == 0
        assert "belongs to another installation" in refusal(second)

    def test_an_embedded_warehouse_is_not_left_behind_for_an_empty_database(self, server, tmp_path):
        data = data_on(server, tmp_path)
        settings = SERVERS.pop(data)
        with running(data, "--workers", "1", environment={"MAUVE_MASTER_KEY": KEY}) as service:
            SERVERS[data] = {"MAUVE_MASTER_KEY": KEY}
            assert send(service, new_app(service), "ann") == 202
            until_loaded(service)
        SERVERS[data] = settings
        assert "mauve move" in refusal(data)


def refusal(data):
    """Return the only sentence with which the service refuses to start."""
    began = time.monotonic()
    done = mauve(data, "serve", "--port", "0", "--ingest-port", "0")
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - began < REFUSAL_S_MAX
    (sentence,) = done.stderr.splitlines()
    return sentence


def new_app(service):
    token = bearer(token_for(service.data))
    return httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=token, timeout=PATIENCE_S).json()


def send(service, app, user):
    event = {"name": "seen", "id": user, "user": user}
    headers = bearer(app["sk_key"])
    return httpx.post(f"{service.ingest_url}/v1/events", json=event, headers=headers, timeout=PATIENCE_S).status_code


def ask(url, key):
    """Return the status, and how long the answer took."""
    began = time.monotonic()
    status = httpx.get(url, headers=bearer(key) if key else {}, timeout=PATIENCE_S).status_code
    return status, time.monotonic() - began
