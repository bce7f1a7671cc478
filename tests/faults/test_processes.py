"""Any process may die or hang at any time.

Proves: ingest-alone, hang, death.
"""

import base64
import json
import os
import signal
import time
from contextlib import suppress
from hashlib import sha256

import httpx2 as httpx
import pytest

from support.service import bearer, eventually, freeze, is_alive, post_events, running, start, token_for

HANG_S = 10
# Loaded by every process before anything else. The signal handler never returns, so the event loop stops.
BLOCK_ON_SIGNAL = """
import signal, time
def block_forever(*_):
    while True:
        time.sleep(1)
signal.signal(signal.SIGHUP, block_forever)
"""


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "2") as started:
        yield started


@pytest.fixture
def key(service):
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(service.data)))
    return reply.json()["sk_key"]


@pytest.mark.parametrize("victim", ["core", "ingest-1", "ingest-2"])
def test_a_killed_process_is_restarted(service, key, victim):
    before = service.child_pids()
    os.kill(before[victim], signal.SIGKILL)
    after = eventually(lambda: (now := service.child_pids()).keys() == before.keys() and now != before and now)
    assert {name for name in before if before[name] != after[name]} == {victim}
    assert eventually(lambda: post_events(service.url, key) == post_events(service.ingest_url, key) == 202)
    assert '"process_died"' in service.log()


def test_workers_keep_their_keys_while_the_core_is_down(service, key):
    core = service.child_pids()["core"]
    freeze(core)
    try:
        assert {post_events(service.ingest_url, key) for _ in range(10)} == {202}
        assert post_events(service.ingest_url, key[:-1] + ("1" if key.endswith("0") else "0")) == 401
    finally:
        os.kill(core, signal.SIGCONT)


def test_a_worker_that_starts_while_the_catalog_is_damaged_uses_its_snapshot(service, key):
    assert {post_events(service.ingest_url, key) for _ in range(40)} == {202}, "every worker knows the key"
    workers = {name: pid for name, pid in service.child_pids().items() if name != "core"}
    digest = base64.b64encode(sha256(key.encode()).digest())
    eventually(lambda: sum(digest in path.read_bytes() for path in service.data.glob("keys-*.json")) > len(workers))
    for name in ("catalog.db", "catalog.db-wal"):
        with (service.data / name).open("r+b") as file:
            file.write(b"damaged" * 4000)
    assert {post_events(service.ingest_url, key) for _ in range(10)} == {202}
    for pid in workers.values():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, workers.values())))
    eventually(lambda: service.log().count('"catalog_unreadable"') >= len(workers))
    eventually(lambda: post_events(service.ingest_url, key) == 202)
    assert {post_events(service.ingest_url, key) for _ in range(10)} == {202}


def test_the_reason_why_a_process_cannot_restart_is_logged(service):
    (service.data / "master.key").rename(service.data / "master.key.away")
    os.kill(service.child_pids()["core"], signal.SIGKILL)
    assert eventually(lambda: "process_not_started" in service.log() and "backup" in service.log())
    (service.data / "master.key.away").rename(service.data / "master.key")
    assert eventually(lambda: httpx.get(f"{service.ingest_url}/healthz").status_code == 200)


def test_when_the_supervisor_is_killed_all_processes_end_and_a_new_one_can_start(tmp_path):
    data = tmp_path / "data"
    first = start(data, "--workers", "2")
    children = first.child_pids().values()
    first.process.kill()
    first.process.wait()
    first.process.stdout.close()
    with running(data) as second:
        assert second.url
        assert not any(map(is_alive, children))


def test_a_process_that_keeps_dying_is_restarted_less_and_less_often(service):
    for _ in range(3):
        before = service.child_pids()["ingest-1"]
        os.kill(before, signal.SIGKILL)
        eventually(lambda before=before: service.child_pids().get("ingest-1", before) != before)
    delays = [
        line.split('"restart_in_s": ')[1].split(",")[0]
        for line in service.log().splitlines()
        if "ingest-1" in line and "process_died" in line
    ]
    assert [float(delay) for delay in delays] == sorted({float(delay) for delay in delays})
    assert len(delays) == 3


@pytest.fixture
def blockable(tmp_path):
    """A service whose processes hang on SIGHUP."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCK_ON_SIGNAL)
    environment = {
        "PYTHONPATH": str(tmp_path / "site"),
        "MAUVE_HANG_SECONDS": str(HANG_S),
        "MAUVE_LOG": "json",
        "MAUVE_READ_CACHE_SECONDS": "0",
    }
    with running(tmp_path / "data", "--workers", "2", environment=environment) as started:
        yield started


def answers(url):
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def acknowledged(url, key, names):
    """Send an event of each name, each on a new connection; return the acknowledged names."""
    acked = []
    with httpx.Client(headers=bearer(key) | {"connection": "close"}, timeout=2) as client:
        for name in names:
            with suppress(httpx.TransportError):
                if client.post(f"{url}/v1/events", json={"name": name}).status_code == 202:
                    acked.append(name)
    return acked


def counts(service, key):
    reply = httpx.get(f"{service.url}/v1/metrics/event_names", headers=bearer(key), timeout=20)
    return {row["name"]: row["count"] for row in reply.json()["data"]}


@pytest.mark.parametrize("victim", ["core", "ingest-1"])
def test_a_hung_process_is_restarted_and_no_acknowledged_event_is_lost(blockable, victim):
    service = blockable
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(service.data)))
    key = reply.json()["sk_key"]
    sent = [f"event {number}" for number in range(30)]
    acked = acknowledged(service.ingest_url, key, sent[:10])
    before = service.child_pids()
    os.kill(before[victim], signal.SIGHUP)
    acked += acknowledged(service.ingest_url, key, sent[10:20])
    others = service.ingest_url if victim == "core" else service.url
    assert eventually(lambda: answers(others)), "the other processes keep answering"
    after = eventually(lambda: (now := service.child_pids()).keys() == before.keys() and now != before and now, 60)
    assert {name for name in before if before[name] != after[name]} == {victim}
    for url in (service.url, service.ingest_url):
        assert eventually(lambda url=url: answers(url), 60)
    acked += acknowledged(service.ingest_url, key, sent[20:])
    (logged,) = [line for line in map(json.loads, service.log().splitlines()) if line["event"] == "process_hangs"]
    assert logged["child"] == victim
    assert logged["silent_s"] >= HANG_S
    assert "in block_forever" in logged["stacks"]
    assert logged["stacks"].count("Thread 0x") + logged["stacks"].count("thread 0x") >= 2, "of every thread"
    assert len(acked) > 10
    assert eventually(lambda: {name for name in acked if counts(service, key).get(name) != 1} == set(), 60)


def test_a_stopped_process_is_restarted(blockable):
    before = blockable.child_pids()
    freeze(before["ingest-2"])
    after = eventually(lambda: (now := blockable.child_pids()).keys() == before.keys() and now != before and now, 60)
    assert {name for name in before if before[name] != after[name]} == {"ingest-2"}
    assert "process_hangs" in blockable.log()


def test_no_process_is_killed_because_the_supervisor_was_suspended(blockable):
    before = blockable.child_pids()
    for pid in (blockable.process.pid, *before.values()):
        freeze(pid)
    time.sleep(HANG_S + 5)
    for pid in (blockable.process.pid, *before.values()):
        os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: answers(blockable.url))
    time.sleep(3)
    assert blockable.child_pids() == before
    assert "process_hangs" not in blockable.log()


def test_a_process_whose_loader_hangs_is_restarted_and_no_acknowledged_event_is_lost(tmp_path):
    """Independent of its event loop, which still answers, and of the other limit, which is off."""
    environment = {"MAUVE_HANG_SECONDS": "0", "MAUVE_LOAD_HANG_SECONDS": str(HANG_S), "MAUVE_LOG": "json"}
    environment["MAUVE_READ_CACHE_SECONDS"] = "0"
    with running(tmp_path / "data", "--workers", "1", environment=environment) as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(service.data)))
        key, before = reply.json()["sk_key"], service.child_pids()
        blocking = service.data / "log" / "200" / f"{2**20:014d}-{'0' * 16}.segment"
        blocking.parent.mkdir(mode=0o700)
        os.mkfifo(blocking)  # Opening it never returns, as no one writes to it.
        assert acknowledged(service.ingest_url, key, ["sent during the hang"])
        assert eventually(lambda: "process_hangs" in service.log(), 60)
        blocking.unlink()
        after = eventually(lambda: (now := service.child_pids()).keys() == before.keys() and now != before and now, 60)
        assert {name for name in before if before[name] != after[name]} == {"core"}
        assert eventually(lambda: answers(service.url) and counts(service, key) == {"sent during the hang": 1}, 60)
        logged = [line for line in map(json.loads, service.log().splitlines()) if line["event"] == "process_hangs"]
        assert logged[0]["child"] == "core"
        assert "in open_segment" in logged[0]["stacks"]
