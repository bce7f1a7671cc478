"""The files of the log are lost, wholly or in part: new events count, and the loss is reported.

Proves: lost-log.
"""

import asyncio
import json
import shutil
import sqlite3

import httpx2 as httpx
import pytest

from mauve.access.vault import new_master_key
from mauve.config import settings_from
from mauve.stores import StoreUnavailableError
from mauve.wiring.log import open_log_writer
from support.segment_log import append_all
from support.service import bearer, eventually, mauve, running, token_for

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0", "MAUVE_LOG": "json"}


def send(url, key, count=5):
    for _ in range(count):
        assert httpx.post(f"{url}/v1/events", json={"name": "view"}, headers=bearer(key)).status_code == 202


def counted(service, key):
    reply = httpx.get(f"{service.url}/v1/metrics/event_count", params={"name": "view"}, headers=bearer(key), timeout=20)
    return sum(row["count"] for row in reply.json()["data"])


def losses(service):
    """Return how often the loss was logged, in all runs."""
    return service.log().count('"log_lost"')


def queue_of(data):
    checks = json.loads(mauve(data, "doctor", "--json").stdout)["checks"]
    return next(check for check in checks if check["name"] == "queue")


def delete_all(log, _older):
    shutil.rmtree(log)


def delete_one_stream(log, _older):
    shutil.rmtree(log / "001")


def delete_segments(log, _older):
    for path in log.glob("*/*.segment"):
        path.unlink()


def restore_older_copy(log, older):
    shutil.rmtree(log)
    shutil.copytree(older, log)


@pytest.mark.parametrize("lose", [delete_all, delete_one_stream, delete_segments, restore_older_copy])
def test_events_count_after_the_log_was_lost_and_the_loss_is_reported(tmp_path, lose):
    data, older = tmp_path / "data", tmp_path / "older"
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(data)))
        key = reply.json()["sk_key"]
        send(service.url, key)
        send(service.ingest_url, key)
        assert eventually(lambda: counted(service, key) == 10)
    shutil.copytree(data / "log", older)
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        send(service.url, key)
        send(service.ingest_url, key)
        assert eventually(lambda: counted(service, key) == 20)
    assert queue_of(data)["ok"]

    lose(data / "log", older)
    found = queue_of(data)
    assert not found["ok"]
    assert "lost" in found["detail"]
    assert "mauve serve" in found["advice"]

    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        send(service.url, key)
        send(service.ingest_url, key)
        assert eventually(lambda: counted(service, key) == 30)
        assert losses(service) == 1
        found = queue_of(data)
        assert not found["ok"], "until the operator has seen it"
        streams = "stream 1 were" if lose is delete_one_stream else "streams 0, 1 were"
        assert f"0 records could not be loaded, the files of {streams} lost on 20" in found["detail"]
        assert "events waiting there are gone" in found["detail"]
    with sqlite3.connect(data / "ledger.db") as ledger:
        reasons = [reason for (reason,) in ledger.execute("SELECT reason FROM dead_letters")]
        ledger.execute("DELETE FROM dead_letters")
    ledger.close()
    assert len(reasons) == (1 if lose is delete_one_stream else 2), "once for each stream"
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        send(service.ingest_url, key)
        assert eventually(lambda: counted(service, key) == 35)
        assert losses(service) == 1
    assert queue_of(data)["ok"], "it is reported once"


def test_a_lost_stream_without_a_writer_is_reported_once(tmp_path):
    data = tmp_path / "data"
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(data)))
        key = reply.json()["sk_key"]
        send(service.ingest_url, key)
        assert eventually(lambda: counted(service, key) == 5)
    with sqlite3.connect(data / "ledger.db") as ledger:
        ledger.execute("UPDATE load_positions SET stream = 7 WHERE stream = 1")  # of a worker that no longer exists
    ledger.close()
    assert "lost" in queue_of(data)["detail"]
    for _ in range(2):
        with running(data, "--workers", "1", environment=NO_CACHE) as service:
            assert losses(service) == 1
    assert mauve(data, "doctor").returncode == 1


def test_without_its_ledger_a_stream_continues_only_if_it_has_files(tmp_path):
    """Otherwise it is unknown which numbers were loaded."""
    environment = {"MAUVE_DATA": str(tmp_path), "MAUVE_MASTER_KEY": new_master_key()}
    settings = settings_from(environment | {"MAUVE_DATABASE_URL": "postgresql://mauve@127.0.0.1:1/mauve"})

    async def append():
        writer, _ = await open_log_writer(settings, 1)
        place = await writer.append([b"a record"])
        await writer.close()
        return place

    with pytest.raises(StoreUnavailableError):
        asyncio.run(append())
    append_all(tmp_path / "log", [b"a record"], stream=1)
    assert asyncio.run(append()) > 0
