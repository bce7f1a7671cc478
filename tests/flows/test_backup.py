"""Back up all data under load, restore it elsewhere, and compare.

Proves: backup.
"""

import itertools
import json
import os
import shutil
import threading
import time
from collections import Counter

import httpx2 as httpx
import pytest

from mauve.metrics.registry import METRICS
from mauve.stores.data_directory import Holder, hold, record_holder
from support.billing import SECRET_A, sample, signed_a
from support.browser import PASSWORD, Browser
from support.service import bearer, eventually, ledger_rows, mauve, mauve_json, running, stored_events, token_for

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}
SUBSCRIPTIONS = [
    {"type": "subscription", "id": "s1", "status": "active", "mrr": 900, "currency": "eur"},
    {"type": "subscription", "id": "s2", "status": "canceled", "mrr": 500, "currency": "eur"},
]
EVENTS = [
    {"name": "user_signup", "user": "ann", "id": "signup-ann"},
    {"name": "view", "user": "ann", "id": "view-1"},
    {"name": "view", "user": "ann", "id": "view-1"},
    {"name": "view", "user": "bob", "props": {"plan": "pro"}},
    {"name": "payment", "user": "ann", "id": "p1", "props": {"amount": 2**53 - 1, "currency": "eur"}},
    {"name": "payment", "user": "ann", "id": "p2", "props": {"amount": 700, "currency": "usd", "earned": False}},
]


def send(url, key, items, path="/v1/events"):
    reply = httpx.post(f"{url}{path}", json=items, headers=bearer(key))
    assert reply.status_code == 202, reply.text


def read(service, key, metric):
    address = f"{service.url}/v1/metrics/{metric}"
    return httpx.get(address, params={"name": "view"}, headers=bearer(key)).json()["data"]


def every_metric(service, key):
    """Return the value of every metric of a project."""
    return {metric: read(service, key, metric) for metric in METRICS}


def deliver(service, project):
    body = json.dumps(sample("stripe_invoice_paid_basic")).encode()
    headers = {"content-type": "application/json"} | signed_a(body, at=int(time.time()))
    return httpx.post(f"{service.ingest_url}/v1/webhooks/biller_a/{project}", content=body, headers=headers).status_code


class Load(threading.Thread):
    """Sends batches continuously, each with an event and every second one with a payment."""

    def __init__(self, service, key):
        super().__init__()
        self._service, self._key = service, key
        self._stopping = threading.Event()
        self.sent = self.acked = 0

    def run(self):
        with httpx.Client(headers=bearer(self._key)) as client:
            self._send_batches(client)

    def _send_batches(self, client):
        for number in itertools.count(1):
            if self._stopping.is_set():
                return
            batch = [{"name": "view", "user": f"user {number}", "id": f"e{number}"}]
            if number % 2:
                batch.append({"name": "payment", "id": f"p{number}", "props": {"amount": number, "currency": "eur"}})
            self.sent = number
            url = self._service.url if number % 3 else self._service.ingest_url
            assert client.post(f"{url}/v1/events", json=batch).status_code == 202
            self.acked = number

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self.join()


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backup.mauve"


def create_data(service):
    """Create an app with data of every kind; return the app, a token and a test key."""
    with httpx.Client(base_url=service.url) as client:
        setup = service.setup_link.removeprefix(service.url)
        Browser(client).send(setup, {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD})
    (org,) = [each["org_id"] for each in mauve_json(service.data, "org", "list")]
    token = token_for(service.data, org=org)
    app = httpx.post(f"{service.url}/v1/apps", json={"name": "Quiet"}, headers=bearer(token)).json()
    secret = ("webhooks", "secret", "--app", app["app_id"], "--provider", "biller_a")
    mauve_json(service.data, *secret, stdin=SECRET_A)
    mauve_json(service.data, *secret, "--test", stdin=SECRET_A)
    test_key = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "sk", "--test")["key"]
    send(service.ingest_url, app["sk_key"], EVENTS)
    send(service.url, app["sk_key"], SUBSCRIPTIONS, "/v1/objects")
    send(service.url, test_key, [{"name": "rehearsal", "user": "tim"}])
    assert deliver(service, app["public_id"]) == 200
    return app, token, test_key


def is_signed_in(service):
    with httpx.Client(base_url=service.url) as client:
        return "Quiet" in Browser(client).sign_in("ann@example.com").text


def test_a_backup_under_load_holds_what_was_acknowledged_and_everything_works_after_a_restore(data, file, tmp_path):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app, token, test_key = create_data(service)
        key, project = app["sk_key"], app["public_id"]
        eventually(lambda: sum(row["count"] for row in read(service, key, "event_names")) == 3)
        eventually(lambda: read(service, test_key, "mau") == [{"mau": 1}])
        before, rehearsal = every_metric(service, key), every_metric(service, test_key)
        busy = httpx.post(f"{service.url}/v1/apps", json={"name": "Busy"}, headers=bearer(token)).json()
        with Load(service, busy["sk_key"]) as load:
            eventually(lambda: load.acked > 40)
            acked = load.acked
            made = mauve_json(data, "backup", str(file))
            sent = load.sent
            eventually(lambda: load.acked > sent + 20)
        send(service.ingest_url, key, [{"name": "later", "user": "eve"}])
        eventually(lambda: {"name": "later", "count": 1} in read(service, key, "event_names"))
    assert made["file"] == str(file)
    assert made["bytes"] == file.stat().st_size
    assert made["has_master_key"] is True
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.mauve", "data", "data.log"], "no drafts"

    copy = tmp_path / "copy"
    restored = mauve_json(copy, "restore", str(file))
    assert restored["created_at"] == made["created_at"]
    report = mauve_json(copy, "doctor")
    assert report["ok"] is True
    with running(copy, "--workers", "1", environment=NO_CACHE) as service:
        assert every_metric(service, key) == before
        assert every_metric(service, test_key) == rehearsal
        by_token = httpx.get(f"{service.url}/v1/apps", headers=bearer(token)).json()
        assert [each["name"] for each in by_token] == ["Quiet", "Busy"]
        assert by_token[0]["has_biller_a_webhook"] is True
        assert is_signed_in(service)
        assert deliver(service, project) == 200, "the secret can be decrypted"
        assert read(service, key, "revenue") == before["revenue"], "a repeated invoice does not count"
        send(service.ingest_url, key, [{"name": "new", "user": "eve"}])
        eventually(lambda: {"name": "new", "count": 1} in read(service, key, "event_names"))
        assert mauve_json(copy, "doctor")["ok"] is True

    ours = [row for row in stored_events(copy) if row[0] == busy["public_id"]]
    counted = Counter(int(id_[1:]) for _, _, _, id_, is_counted, _ in ours if is_counted)
    assert set(counted.values()) == {1}
    assert len(ours) == len(counted), "nothing is stored twice"
    assert set(range(1, acked + 1)) <= set(counted) <= set(range(1, sent + 1))
    paid = ledger_rows(copy, f"SELECT amount FROM payments WHERE project = '{busy['public_id']}'")
    assert {amount for (amount,) in paid} == {number for number in counted if number % 2}, "batches are whole"
    totals = ledger_rows(copy, f"SELECT total FROM day_totals WHERE project = '{busy['public_id']}'")
    assert sum(int(total) for (total,) in totals) == sum(amount for (amount,) in paid)


def test_the_queue_of_a_stopped_service_is_backed_up_and_loaded_after_a_restore(data, file, tmp_path):
    slow = {"MAUVE_INGEST_FLUSH_SECONDS": "30"}
    with running(data, "--workers", "2", environment=slow) as service:
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "A"}, headers=bearer(token_for(data))).json()
        for place in range(20):
            send(service.ingest_url, app["sk_key"], [{"name": "view", "user": f"user {place}"}])
        service.process.kill()
        service.process.wait()
    eventually(lambda: mauve(data, "doctor").returncode == 0)  # The killed server's processes end after it.
    assert ("queue", "0 bytes wait") not in {
        (check["name"], check["detail"][:12]) for check in mauve_json(data, "doctor")["checks"]
    }
    made = mauve_json(data, "backup", str(file))
    assert made["unloaded_records"] > 0
    mauve_json(tmp_path / "copy", "restore", str(file))
    with running(tmp_path / "copy", "--workers", "1", environment=NO_CACHE) as service:
        eventually(lambda: read(service, app["sk_key"], "mau") == [{"mau": 20}])
        send(service.ingest_url, app["sk_key"], [{"name": "view", "user": "user 20"}])
        eventually(lambda: read(service, app["sk_key"], "mau") == [{"mau": 21}])


def test_a_backup_of_a_restored_directory_is_complete(file, tmp_path):
    data = tmp_path / ("a directory with a long name " * 5)
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "A"}, headers=bearer(token_for(data))).json()
        send(service.ingest_url, app["sk_key"], EVENTS)
        eventually(lambda: read(service, app["sk_key"], "mau") == [{"mau": 2}])
        before = every_metric(service, app["sk_key"])
        mauve_json(data, "backup", str(file))
    mauve_json(tmp_path / "second", "restore", str(file))
    mauve_json(tmp_path / "second", "backup", str(file), "--force")
    mauve_json(tmp_path / "third", "restore", str(file))
    with running(tmp_path / "third", "--workers", "1", environment=NO_CACHE) as service:
        assert every_metric(service, app["sk_key"]) == before
        send(service.ingest_url, app["sk_key"], EVENTS)
        eventually(lambda: read(service, app["sk_key"], "event_count") == [{"name": "view", "count": 3}])


@pytest.fixture(scope="module")
def made(prepared, tmp_path_factory):
    """Return a data directory that was never served, and its backup."""
    home = tmp_path_factory.mktemp("unserved")
    shutil.copytree(prepared[0], home / "data")
    mauve_json(home / "data", "backup", str(home / "backup"))
    return home


class TestRefusals:
    @pytest.fixture
    def unserved(self, made, data, file):
        shutil.copytree(made / "data", data, symlinks=True)
        shutil.copy(made / "backup", file)
        return data

    def assert_refused(self, done, *words):
        assert done.returncode == 2
        assert done.stdout == ""
        sentence = done.stderr.splitlines()[-1]
        assert sentence.startswith("mauve: ")
        assert [word for word in words if word not in sentence] == []

    def test_an_existing_file_is_not_replaced_unless_forced(self, unserved, file):
        before = file.read_bytes()
        self.assert_refused(mauve(unserved, "backup", str(file)), "already exists", "--force")
        assert file.read_bytes() == before
        mauve_json(unserved, "backup", str(file), "--force")
        assert file.read_bytes() != before

    def test_a_file_in_a_missing_directory_is_refused(self, unserved, tmp_path):
        self.assert_refused(mauve(unserved, "backup", str(tmp_path / "nowhere" / "b")), "no directory")

    def test_a_directory_without_data_is_refused(self, tmp_path):
        self.assert_refused(mauve(tmp_path / "nothing", "backup", str(tmp_path / "b")), "no data")
        assert list(tmp_path.iterdir()) == []

    def test_a_directory_that_is_not_empty_is_left_alone(self, unserved, file, tmp_path):
        occupied = tmp_path / "occupied"
        occupied.mkdir()
        (occupied / "mine.txt").write_text("mine")
        self.assert_refused(mauve(occupied, "restore", str(file)), "not empty")
        self.assert_refused(mauve(unserved, "restore", str(file)), "not empty")
        assert [path.name for path in occupied.iterdir()] == ["mine.txt"]

    def test_a_directory_in_use_is_left_alone(self, unserved, file):
        with hold(unserved) as lock:
            record_holder(lock, Holder(os.getpid(), "http://here", "http://here"))
            self.assert_refused(mauve(unserved, "restore", str(file)), "in use")

    @pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
    def test_a_damaged_file_leaves_nothing(self, unserved, file, tmp_path, damage):
        whole = file.read_bytes()
        middle = len(whole) // 2
        damaged = {
            "cut": whole[:-1],
            "flipped": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
            "empty": b"",
            "other": b"PK" + bytes(1000),
        }
        file.write_bytes(damaged[damage])
        before = sorted(tmp_path.iterdir())
        self.assert_refused(mauve(tmp_path / "copy", "restore", str(file)), "not a whole backup")
        assert sorted(tmp_path.iterdir()) == before

    def test_a_missing_file_is_named(self, tmp_path):
        self.assert_refused(mauve(tmp_path / "copy", "restore", str(tmp_path / "typo")), "typo")

    def test_without_a_key_in_the_data_directory_the_backup_has_none_and_says_so(self, settings, file, tmp_path):
        key = {"MAUVE_MASTER_KEY": (settings.data / "master.key").read_text().strip()}
        (settings.data / "master.key").unlink()
        done = mauve(settings.data, "backup", str(file), **key)
        assert (done.returncode, "without the master key" in done.stdout) == (0, True)
        done = mauve(tmp_path / "copy", "restore", str(file))
        assert (done.returncode, "MAUVE_MASTER_KEY" in done.stdout) == (0, True)
        assert not (tmp_path / "copy" / "master.key").exists()

    def test_each_stage_is_shown_on_standard_error(self, unserved, tmp_path):
        done = mauve(unserved, "backup", str(tmp_path / "again"))
        assert [line.partition(",")[0] for line in done.stderr.splitlines()] == [
            "freezing",
            "copying the queue",
            "copying the databases",
            "packing",
        ]

    def test_an_unfinished_restore_keeps_the_service_from_starting(self, unserved):
        (unserved / "restoring").mkdir()
        self.assert_refused(mauve(unserved, "serve"), "did not end")
