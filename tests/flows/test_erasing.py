"""Erasing a user, and raw event retention: metrics do not change, personal data is removed.

Proves: erasure.
"""

import json
import sqlite3
import time
from contextlib import closing

import httpx2 as httpx
import pytest

from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.metrics.registry import METRICS
from mauve.stores.data_directory import holder_of
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
    until_loaded,
)

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}
DAY_MS = 86_400_000
ANN = "ann-who-wants-to-go"
EVENTS = [
    {"name": "user_signup", "user": ANN, "id": f"signup of {ANN}"},
    {"name": "view", "user": ANN, "props": {"mail": f"{ANN}@example.com"}},
    {"name": "view", "user": "bob", "id": "bobs"},
    {"name": "payment", "user": ANN, "id": "p1", "props": {"amount": 500, "currency": "eur", "note": ANN}},
    {"name": "payment", "user": "bob", "id": "p2", "props": {"amount": 1, "currency": "eur"}},
]
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 9, "currency": "eur", "user": ANN}


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def send(service, key, items, path="/v1/events"):
    reply = httpx.post(f"{service.ingest_url}{path}", json=items, headers=bearer(key))
    assert reply.status_code == 202, reply.text
    return reply.json()


def read(service, key, metric):
    address = f"{service.url}/v1/metrics/{metric}"
    return httpx.get(address, params={"name": "view"}, headers=bearer(key)).json()["data"]


def every_metric(service, key):
    return {metric: read(service, key, metric) for metric in METRICS}


def an_app(service):
    headers = bearer(token_for(service.data))
    return httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=headers).json()


def files_with(data, text, *, without=()):
    """Return the files in the data directory that contain a text. The engine removes its old parts by itself."""
    skipped = {"store", *without}
    files = [path for path in data.rglob("*") if path.is_file() and skipped.isdisjoint(path.parts)]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def test_a_user_is_erased_while_the_service_runs_and_no_metric_changes(data):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = an_app(service)
        key = app["sk_key"]
        send(service, key, EVENTS)
        send(service, key, SUBSCRIPTION, "/v1/objects")
        eventually(lambda: read(service, key, "mau") == [{"mau": 2}])
        before = every_metric(service, key)
        send(service, key, [{"name": "view", "user": ANN}])  # still in the queue when the command begins
        erased = mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        assert erased == {
            "events": 3,
            "payments": 1,
            "subscription_versions": 1,
            "dead_letters": 0,
            "damaged_records": 0,
            "queue_is_clean": False,
            "journal_is_clean": True,
        }
        after = every_metric(service, key)
        assert after.pop("event_count") == [{"name": "view", "count": 3}]
        assert [row["count"] for row in after.pop("event_names") + after.pop("event_series")] == [3, 1, 3]
        assert after == {name: rows for name, rows in before.items() if name in after}
        assert send(service, key, EVENTS)["accepted"] == 5, "resent events are repeats or duplicates"
        eventually(lambda: read(service, key, "event_count") == [{"name": "view", "count": 4}])
        assert read(service, key, "revenue") == before["revenue"]
        again = mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        assert (again["events"], again["payments"]) == (2, 0), "the resent events"
    offline = mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
    assert (offline["events"], offline["queue_is_clean"]) == (0, True)
    assert files_with(data, ANN) == []
    assert {user for _, _, user, _, _, _ in stored_events(data)} == {"", "bob"}
    assert ledger_rows(data, "SELECT id, user, payload FROM payments ORDER BY id")[0] == ("p1", None, b"{}")
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        send(service, key, [{"name": "view", "user": "eve"}])
        eventually(lambda: read(service, key, "mau") == [{"mau": 3}])
        assert read(service, key, "event_count") == [{"name": "view", "count": 5}]


def test_erasing_a_user_empties_the_cache_of_the_project(data):
    with running(data, "--workers", "1") as service:
        app, other = an_app(service), an_app(service)

        def freshness(each):
            reply = httpx.get(f"{service.url}/v1/metrics/revenue", headers=bearer(each["sk_key"]), timeout=PATIENCE_S)
            return reply.headers["x-cache"]

        for each in (app, other):
            send(service, each["sk_key"], EVENTS)
            assert [freshness(each), freshness(each)] == ["miss", "hit"]
        mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        eventually(lambda: freshness(app) == "miss")
        assert freshness(other) == "hit"


def test_after_the_command_only_the_queue_of_a_running_service_holds_the_user(data):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = an_app(service)
        send(service, app["sk_key"], EVENTS)
        send(service, app["sk_key"], SUBSCRIPTION, "/v1/objects")
        eventually(lambda: read(service, app["sk_key"], "mau") == [{"mau": 2}])
        assert "ledger.db-wal" in files_with(data, ANN)
        done = mauve(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        assert (done.returncode, "ledger.db-wal" in done.stdout) == (0, False)
        assert files_with(data, ANN, without={"log"}) == []


def test_a_long_read_keeps_the_journal_and_the_command_says_so(data):
    with running(data, "--workers", "1", environment=NO_CACHE | {"MAUVE_READ_SECONDS": "1"}) as service:
        app = an_app(service)
        send(service, app["sk_key"], EVENTS)
        until_loaded(service)
        with closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM payments").fetchone()
            done = mauve(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
            assert (done.returncode, "ledger.db-wal still holds" in done.stdout) == (0, True)
            assert send(service, app["sk_key"], EVENTS[4:])["accepted"] == 1, "writers are not blocked"
        again = mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        assert (again["payments"], again["journal_is_clean"]) == (0, True)
        assert files_with(data, ANN, without={"log"}) == []


def test_the_queue_of_a_stopped_service_is_loaded_and_erased(data):
    with running(data, "--workers", "1", environment={"MAUVE_INGEST_FLUSH_SECONDS": "30"}) as service:
        app = an_app(service)
        for _ in range(5):
            send(service, app["sk_key"], [{"name": "view", "user": ANN}, {"name": "view", "user": "bob"}])
        service.process.kill()
        service.process.wait()
        eventually(lambda: holder_of(data) is None)  # Its children end when they notice.
    assert mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")["events"] == 5
    assert files_with(data, ANN) == []
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        figures = every_metric(service, app["sk_key"])
        assert (figures["mau"], figures["event_count"]) == ([{"mau": 2}], [{"name": "view", "count": 10}])


def test_the_command_requires_confirmation(settings, parts, organization):
    data, app = settings.data, create_app(parts, organization.org_id, NewAppBody("An app"))[0]
    unknown = mauve(data, "erase-user", "--app", "app_none", "ann", "--yes")
    assert (unknown.returncode, "no app" in unknown.stderr) == (2, True)
    for arguments, words in (
        ((ANN,), "--yes"),
        (("",), "empty"),
        ((ANN, "--test", "--yes"), "no test environment"),
    ):
        done = mauve(data, "erase-user", "--app", app.app_id, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_old_raw_events_are_forgotten_at_the_start_and_no_metric_changes(data):
    now = int(time.time() * 1000)
    events = [
        {"name": "view", "user": f"user {age}", "id": f"id {age}", "at": now - age * DAY_MS, "props": {"age": age}}
        for age in (0, 1, 2, 3, 5)
    ]
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = an_app(service)
        send(service, app["sk_key"], events)
        eventually(lambda: read(service, app["sk_key"], "mau") == [{"mau": 5}])
        before = every_metric(service, app["sk_key"])
    environment = NO_CACHE | {"MAUVE_RAW_RETENTION_DAYS": "2"}
    with running(data, "--workers", "1", environment=environment) as service:
        logged = json.loads(
            eventually(lambda: [x for x in service.log().splitlines() if "raw_events_forgotten" in x])[0]
        )
        assert (logged["events"], logged["kept_days"]) == (2, 2)
        assert every_metric(service, app["sk_key"]) == before
        send(service, app["sk_key"], events)
        done = mauve(data, "doctor", "--json", MAUVE_RAW_RETENTION_DAYS="2")
        (finding,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "raw events"]
        assert (finding["ok"], "kept for 2 days" in finding["detail"], logged["before"] in finding["detail"]) == (
            True,
        ) * 3
    stored = stored_events(data)
    assert sorted(user for _, _, user, _, counted, _ in stored if counted) == ["", "", "user 0", "user 1", "user 2"]
