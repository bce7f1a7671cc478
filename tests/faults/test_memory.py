"""A worker's memory is bounded, however much its clients send."""

import json
import socket
from pathlib import Path

import httpx2 as httpx
import pytest

from support.service import PATIENCE_S, bearer, eventually, post_events, running, token_for

CONNECTIONS = 500
MEMORY_MB_MAX = 150
BODY = json.dumps([{"name": "view", "props": {"text": "x" * 1000}}] * 480).encode().ljust(1024 * 1024)


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "1") as started:
        yield started


def resident_mb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def test_five_hundred_connections_with_a_megabyte_each_fit_into_a_worker(service):
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token_for(service.data)))
    key = reply.json()["sk_key"]
    head = (
        f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    ).encode()
    address = ("127.0.0.1", int(service.ingest_url.rpartition(":")[2]))
    connections = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.sendall(head + BODY[:200_000])
    for connection in connections:
        connection.sendall(BODY[200_000:])
    statuses = {connection.recv(100).split(b" ")[1] for connection in connections}
    for connection in connections:
        connection.close()
    assert statuses <= {b"202", b"400", b"503"}, "accepted, or refused after waiting too long"
    assert b"202" in statuses
    assert resident_mb(service.child_pids()["ingest-1"]) < MEMORY_MB_MAX
    assert eventually(lambda: post_events(service.ingest_url, key) == 202)


def test_a_body_that_never_arrives_times_out(service):
    reply = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token_for(service.data)))
    key = reply.json()["sk_key"]
    head = (
        f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\ncontent-length: 50\r\n\r\n["
    ).encode()
    with socket.create_connection(
        ("127.0.0.1", int(service.ingest_url.rpartition(":")[2])), timeout=PATIENCE_S
    ) as connection:
        connection.sendall(head)
        assert b" 400 " in connection.recv(1000)
    assert post_events(service.ingest_url, key) == 202
