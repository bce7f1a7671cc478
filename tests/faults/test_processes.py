"""Any process may die at any moment."""

import os
import signal

import httpx2 as httpx
import pytest

from support import bearer, eventually, is_alive, mauve_json, post_events, running, start, token_for


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "2") as started:
        yield started


@pytest.fixture
def key(service):
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(service.data)))
    return reply.json()["sk_key"]


@pytest.mark.parametrize("victim", ["core", "ingest-1", "ingest-2"])
def test_a_process_that_is_killed_is_started_again(service, key, victim):
    before = service.child_pids()
    os.kill(before[victim], signal.SIGKILL)
    after = eventually(lambda: (now := service.child_pids()).keys() == before.keys() and now != before and now)
    assert {name for name in before if before[name] != after[name]} == {victim}
    assert eventually(lambda: post_events(service.url, key) == post_events(service.ingest_url, key) == 202)
    assert '"process_died"' in service.log()


def test_workers_keep_their_keys_while_the_core_is_down(service, key):
    core = service.child_pids()["core"]
    os.kill(core, signal.SIGSTOP)
    try:
        assert {post_events(service.ingest_url, key) for _ in range(10)} == {202}
        assert post_events(service.ingest_url, key[:-1] + "0") == 401
    finally:
        os.kill(core, signal.SIGCONT)


def test_workers_keep_their_keys_when_the_edge_is_damaged(service, key):
    assert {post_events(service.ingest_url, key) for _ in range(40)} == {202}, "every worker has seen the key"
    for name in ("edge.db", "edge.db-wal"):
        with (service.data / name).open("r+b") as file:
            file.write(b"damaged" * 4000)
    eventually(lambda: service.log().count('"edge_unreadable"') >= 2)  # Both workers have looked.
    assert {post_events(service.ingest_url, key) for _ in range(10)} == {202}


def test_a_lost_edge_is_filled_anew_at_the_next_start(tmp_path):
    data = tmp_path / "data"
    with running(data) as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(data)))
        key = reply.json()["sk_key"]
    for path in data.glob("edge.db*"):
        path.unlink()
    with running(data) as service:
        assert post_events(service.ingest_url, key) == 202


def test_an_edge_that_a_command_made_anew_is_filled_too(tmp_path):
    data = tmp_path / "data"
    with running(data) as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(data)))
        key = reply.json()["sk_key"]
    for path in data.glob("edge.db*"):
        path.unlink()
    mauve_json(data, "org", "create", "The first to write to the new edge")
    with running(data) as service:
        assert post_events(service.ingest_url, key) == 202


def test_the_reason_why_a_process_does_not_start_again_is_logged(service):
    (service.data / "master.key").rename(service.data / "master.key.away")
    os.kill(service.child_pids()["core"], signal.SIGKILL)
    assert eventually(lambda: "process_not_started" in service.log() and "backup" in service.log())
    (service.data / "master.key.away").rename(service.data / "master.key")
    assert eventually(lambda: httpx.get(f"{service.ingest_url}/healthz").status_code == 200)


def test_when_the_supervisor_is_killed_everything_ends_and_can_start_again(tmp_path):
    data = tmp_path / "data"
    first = start(data, "--workers", "2")
    children = first.child_pids().values()
    first.process.kill()
    first.process.wait()
    first.process.stdout.close()
    with running(data) as second:
        assert second.url
        assert not any(map(is_alive, children))


def test_a_process_that_keeps_dying_is_started_less_and_less_often(service):
    for _ in range(3):
        before = service.child_pids()["ingest-1"]
        os.kill(before, signal.SIGKILL)
        eventually(lambda before=before: service.child_pids().get("ingest-1", before) != before)
    pauses = [
        line.split('"restart_in_s": ')[1].split(",")[0]
        for line in service.log().splitlines()
        if "ingest-1" in line and "process_died" in line
    ]
    assert [float(pause) for pause in pauses] == sorted({float(pause) for pause in pauses})
    assert len(pauses) == 3
