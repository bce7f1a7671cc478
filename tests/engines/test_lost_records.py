"""The log lacks records that were not loaded: after a restore, or because someone has purged a stream.

Proves: lost-stream.
"""

import json
import secrets

import httpx2 as httpx
import psycopg
import pytest

from mauve.stores.log.nats.streams import STREAMS, first_number, sequence_of, stream_name
from support.nats_streams import delete_streams, info_of, purge_streams
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

LOADED = ("a", "b", "c", "d", "e")


@pytest.fixture
def data(new_installation, postgres, clickhouse, own_nats_server, tmp_path):
    data = tmp_path / "data"
    SERVERS[data] = new_installation(postgres, clickhouse, own_nats_server)
    return data


def send(service, key, *names):
    items = [{"name": name, "id": name} for name in names]
    return httpx.post(f"{service.ingest_url}/v1/events", json=items, headers=bearer(key), timeout=PATIENCE_S)


def names_stored(data):
    return sorted(row[1] for row in stored_events(data) if row[4] == 1)


@pytest.fixture
def key(data):
    """The key of an app with five loaded events, of a service that is stopped."""
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()
        for name in LOADED:
            assert eventually(lambda name=name: send(service, app["sk_key"], name).status_code == 202)
        until_loaded(service)
    return app["sk_key"]


@pytest.fixture
def emptied(data, key, own_nats_server):
    """Go back to where two of the events were loaded and one was intended, as after a restore; empty the log."""
    with psycopg.connect(SERVERS[data]["MAUVE_DATABASE_URL"]) as connection:
        rows = connection.execute("SELECT stream, number FROM ledger.load_positions").fetchall()
        stream, number = max(rows, key=lambda row: row[1])
        before = first_number(sequence_of(number) - 1)
        connection.execute("UPDATE ledger.load_positions SET number = %s WHERE stream = %s", [before, stream])
        connection.execute("UPDATE ledger.load_lease SET intent = %s", [f"{stream}:{before}-{number}"])
    purge_streams(own_nats_server)
    return stream


def loads_new_events(data, key):
    with running(data, "--workers", "1") as service:
        assert eventually(lambda: send(service, key, "new").status_code == 202)
        assert eventually(lambda: "new" in names_stored(data))


def diagnosed(data, name):
    checks = json.loads(mauve(data, "doctor", "--json").stdout)["checks"]
    return next(check for check in checks if check["name"] == name)


@pytest.mark.usefixtures("emptied")
def test_a_restore_does_not_pass_over_lost_records_unless_told_to(data, key):
    refused = mauve(data, "restore", "--servers")
    (sentence,) = refused.stderr.splitlines()
    assert (refused.returncode, " 1 message " in sentence, "--without-lost" in sentence) == (2, True, True)
    assert not diagnosed(data, "queue")["ok"]
    assert mauve(data, "restore", "--without-lost").returncode == 2
    assert mauve_json(data, "restore", "--servers", "--without-lost") == {"loads_again_since": None, "lost_messages": 1}
    assert mauve_json(data, "restore", "--servers") == {"loads_again_since": None}, "nothing is missing any more"
    assert ledger_rows(data, "SELECT intent FROM load_lease") == [(None,)]
    loads_new_events(data, key)
    assert names_stored(data) == sorted([*LOADED, "new"]), "stored rows stay, each once"
    assert diagnosed(data, "queue")["ok"]


def test_new_events_do_not_wait_for_lost_records_and_the_loss_is_reported(data, key, emptied):
    found = diagnosed(data, "queue")
    assert (found["ok"], "1 message was" in found["detail"], "restore" in found["advice"]) == (False, True, True), found
    loads_new_events(data, key)
    assert names_stored(data) == sorted([*LOADED, "new"])
    assert "log_records_lost" in (data.parent / f"{data.name}.log").read_text()
    ((stream, reason),) = ledger_rows(data, "SELECT stream, reason FROM dead_letters")
    assert (stream, reason.endswith("up to this one: 1")) == (emptied, True)
    found = diagnosed(data, "queue")
    assert (found["ok"], "dead_letters" in found["advice"]) == (False, True)


@pytest.mark.usefixtures("key")
def test_a_restored_database_is_refused_until_it_is_in_line(data, postgres, tmp_path):
    url = SERVERS[data]["MAUVE_DATABASE_URL"]
    dump = tmp_path / "dump"
    postgres.dump(url, dump)
    SERVERS[data]["MAUVE_DATABASE_URL"] = postgres.create(f"new_{secrets.token_hex(8)}")
    postgres.restore(SERVERS[data]["MAUVE_DATABASE_URL"], dump)
    for arguments in (["serve", "--role", "loader"], ["serve"], ["org", "list"]):
        refused = mauve(data, *arguments)
        (sentence,) = refused.stderr.splitlines()
        assert (refused.returncode, "run 'mauve restore --servers'" in sentence) == (1, True), sentence
    assert "restore --servers" in diagnosed(data, "catalog")["advice"]
    mauve_json(data, "restore", "--servers")
    assert diagnosed(data, "catalog")["ok"]
    with running(data, "--workers", "1"):
        pass
    with psycopg.connect(SERVERS[data]["MAUVE_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("VACUUM (FULL, FREEZE) catalog.installation")
    assert mauve(data, "org", "list").returncode == 0, "not a copy, though its table was rewritten"


def filled_streams(servers):
    return [stream for stream in STREAMS if info_of(servers, stream).state.messages]


def positions(data):
    return dict(ledger_rows(data, "SELECT stream, number FROM load_positions"))


class TestOneLostStream:
    """The other streams are written and loaded; only what the lost one held is given up, and only on request."""

    @pytest.fixture
    def lost(self, data, key, own_nats_server):
        """The stream that the loaded events were in."""
        (stream,) = filled_streams(own_nats_server)
        return stream

    def accepts_and_loads(self, data, key, name):
        with running(data, "--workers", "1") as service:
            assert eventually(lambda: send(service, key, name).status_code == 202)
            assert eventually(lambda: name in names_stored(data))
            return service.log()

    def test_a_running_service_goes_on_with_the_others(self, data, key, lost, own_nats_server):
        with running(data, "--workers", "1") as service:
            until_loaded(service)
            delete_streams(own_nats_server, [lost])
            for name in ("f", "g"):
                assert eventually(lambda name=name: send(service, key, name).status_code == 202)
                assert eventually(lambda name=name: name in names_stored(data))
            assert httpx.get(f"{service.url}/readyz").status_code == 200
            assert eventually(lambda: "log_stream_lost" in service.log())
            assert service.log().count("log_stream_lost") == 1

    def test_a_start_is_not_refused_and_the_loss_is_reported(self, data, key, lost, own_nats_server):
        delete_streams(own_nats_server, [lost])
        log = self.accepts_and_loads(data, key, "f")
        assert ("log_stream_lost" in log, "--new-streams" in log) == (True, True)
        found = diagnosed(data, "queue")
        assert (found["ok"], f"{stream_name(lost)} is missing" in found["detail"]) == (False, True), found
        assert "mauve restore --servers --new-streams" in found["advice"]

    def test_one_command_replaces_only_it_and_says_what_was_lost(self, data, key, lost, own_nats_server):
        last = info_of(own_nats_server, lost).state.last_seq
        delete_streams(own_nats_server, [lost])
        with running(data, "--workers", "1", "--role", "ingest") as service:
            assert eventually(lambda: send(service, key, "waits").status_code == 202)
        kept = {stream: info_of(own_nats_server, stream) for stream in STREAMS if stream != lost}
        refused = mauve(data, "restore", "--servers")
        assert f"{stream_name(lost)} at MAUVE_STREAM_URL is missing" in refused.stderr
        assert (refused.returncode, "--new-streams" in refused.stderr) == (2, True)
        done = mauve_json(data, "restore", "--servers", "--new-streams")
        (replaced,) = done.pop("streams_replaced")
        assert replaced["last_stored_at"] > 0
        assert (replaced["stream"], replaced["loss"]) == (stream_name(lost), "is missing")
        assert done["loads_again_since"] is not None, "what waits in the others is kept"
        for stream, info in kept.items():
            found = info_of(own_nats_server, stream)
            assert (found.config.metadata, found.state) == (info.config.metadata, info.state)
        assert mauve_json(data, "restore", "--servers", "--new-streams").keys() == {"loads_again_since"}, "nothing more"
        self.accepts_and_loads(data, key, "new")
        assert names_stored(data) == sorted([*LOADED, "waits", "new"])
        assert info_of(own_nats_server, lost).state.first_seq == last + 1
        assert diagnosed(data, "queue")["ok"]

    def test_an_older_copy_gets_no_new_records(self, data, key, lost, own_nats_server):
        """They would have the numbers of loaded ones, and never be loaded."""
        with psycopg.connect(SERVERS[data]["MAUVE_DATABASE_URL"]) as connection:
            connection.execute("UPDATE ledger.load_positions SET number = number + 6400 WHERE stream = %s", [lost])
        before = info_of(own_nats_server, lost).state.last_seq
        self.accepts_and_loads(data, key, "f")
        assert info_of(own_nats_server, lost).state.last_seq == before
        (replaced,) = mauve_json(data, "restore", "--servers", "--new-streams")["streams_replaced"]
        assert (replaced["stream"], "older" in replaced["loss"]) == (stream_name(lost), True)
        self.accepts_and_loads(data, key, "new")
        assert names_stored(data) == sorted([*LOADED, "f", "new"])

    def test_an_unfinished_range_keeps_its_other_streams(self, data, key, lost, own_nats_server):
        other = next(stream for stream in STREAMS if stream != lost)
        intent = f"{lost}:{positions(data)[lost]}-9999,{other}:0-64"
        with psycopg.connect(SERVERS[data]["MAUVE_DATABASE_URL"]) as connection:
            connection.execute("UPDATE ledger.load_lease SET intent = %s", [intent])
        delete_streams(own_nats_server, [lost])
        mauve_json(data, "restore", "--servers", "--new-streams")
        assert ledger_rows(data, "SELECT intent FROM load_lease") == [(f"{other}:0-64",)]

    @pytest.mark.usefixtures("lost")
    def test_a_start_is_refused_if_no_stream_is_left(self, data, own_nats_server):
        delete_streams(own_nats_server)
        refused = mauve(data, "serve")
        (sentence,) = refused.stderr.splitlines()
        assert (refused.returncode, "no stream of this installation is left" in sentence) == (1, True), sentence
        assert "'mauve restore --servers --new-streams'" in sentence
