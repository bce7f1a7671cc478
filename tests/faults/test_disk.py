"""A disk that fails once, and one that is full: requests are refused meanwhile, and it recovers without help.

Proves: failed-write, full-disk.
"""

import errno
import itertools
import os
import shutil
import subprocess
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from mauve.stores.disk import Disk
from support.service import bearer, eventually, running, stored_events, token_for

LARGE = "x" * 1000
DISK_MEGABYTES = 120


@pytest.fixture
def key(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]


def test_a_failed_sync_refuses_its_group_and_all_later_ones_until_the_process_restarts(
    core, client, key, load, monkeypatch, connection
):
    def post(to, id_):
        return to.post("/v1/events", json=[{"name": "view", "id": id_}], headers=bearer(key)).status_code

    sync = Disk.sync
    failures = [OSError(errno.EIO, "broken")]

    def fail_once(self, descriptor):
        is_pooled = "spare" in Path(f"/proc/self/fd/{descriptor}").readlink().parts  # prepared ahead, in another thread
        if failures and not is_pooled:
            raise failures.pop()
        sync(self, descriptor)

    assert post(client, "before") == 202
    monkeypatch.setattr(Disk, "sync", fail_once)
    assert post(client, "failed") == 503
    assert failures == [], "from here on the disk is well"
    assert post(client, "refused") == 503
    assert client.get("/readyz").json()["engines"]["log"] == "unreachable"
    client.__exit__(None, None, None)
    with TestClient(core) as restarted:
        assert post(restarted, "after") == 202
        load()
    stored = {id_ for (id_,) in connection.read("SELECT id FROM mauve.events", {})}
    assert {"before", "after"} <= stored <= {"before", "failed", "after"}


@pytest.fixture
def small_disk(tmp_path):
    """A separate file system with little space."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    yield path
    eventually(lambda: subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode == 0)


def fill(path):
    """Fill the remaining space."""
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(65_536)):
            pass


def test_a_full_disk_refuses_with_503_and_recovers_by_itself(small_disk):
    data, acked, possible = small_disk / "data", set(), set()
    payments = itertools.count()
    first_days = (date(2026, 1, 1) - timedelta(days=number) for number in itertools.count())
    with running(data, "--workers", "1") as service:
        token = token_for(data)
        key = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()["sk_key"]

        def post():
            ids = [f"{len(possible)}-{place}" for place in range(300)]
            batch = [{"name": "view", "user": "ann", "id": id_, "props": {"text": LARGE}} for id_ in ids]
            possible.update(ids)
            try:
                status = httpx.post(f"{service.ingest_url}/v1/events", json=batch, headers=bearer(key)).status_code
            except httpx.TransportError:
                return 0
            acked.update(ids if status == 202 else ())
            assert status in {202, 503}
            return status

        def pay():
            payment = {"name": "payment", "id": f"p{next(payments)}", "props": {"amount": 5, "currency": "eur"}}
            return httpx.post(f"{service.ingest_url}/v1/events", json=[payment], headers=bearer(key)).status_code

        def read(metric, **parameters):
            address = f"{service.url}/v1/metrics/{metric}"
            return httpx.get(address, params=parameters, headers=bearer(key))

        def some_are_loaded():
            # A new question each time: answers are cached for minutes, including the one without rows.
            return read("event_names", date_from=str(next(first_days))).json().get("data")

        assert post() == 202
        eventually(lambda: read("mau").status_code == 200)
        fill(small_disk / "ballast")
        assert eventually(lambda: post() == 503)
        eventually(lambda: pay() == 503)
        for url in (service.url, service.ingest_url):
            ready = httpx.get(f"{url}/readyz")
            assert (ready.status_code, ready.json()["engines"]["ledger"]) == (503, "unreachable")
            assert "ledger" in ready.json()["reason"]
        assert (read("mau").status_code, read("revenue").status_code) == (200, 200), "reads go on"
        (small_disk / "ballast").unlink()
        assert eventually(lambda: post() == 202)
        assert eventually(lambda: pay() == 202)
        assert eventually(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
        eventually(some_are_loaded)
        assert shutil.disk_usage(small_disk).free > 0
    with running(data):  # It loads the rest.
        eventually(lambda: not _backlog(data))
    stored = stored_events(data)
    counted = [row[3] for row in stored if row[4]]
    assert len(counted) == len(set(counted))
    assert acked <= set(counted) <= possible


def _backlog(data):
    """Return all segments but the last one of each stream, which is kept."""
    return [path for stream in (data / "log").iterdir() for path in sorted(stream.glob("*.segment"))[:-1]]
