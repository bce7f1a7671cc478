"""Clients that send too much, too slowly, or nothing at all: others are served, and memory stays bounded.

Proves: slow-clients, bombs.
"""

import gzip
import json
import resource
import socket
from pathlib import Path

import httpx2 as httpx
import pytest
import zstandard

from support.service import PATIENCE_S, bearer, eventually, start, token_for

CONNECTIONS_MAX = 2048
IDLE, SLOW_HEADERS, SLOW_BODIES = 1_000, 100, 40
MEMORY_MB_MAX = 150
GONE_WITHIN_S = 2 * PATIENCE_S
BATCH = json.dumps([{"name": "view", "props": {"text": "x" * 150}}] * 500).encode()
DEEP = 400_000


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service started with the default limit on open files; the test itself opens more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    data = tmp_path_factory.mktemp("hostile") / "data"
    started = start(data, "--workers", "1", environment={"MAUVE_CONNECTIONS_PER_ADDRESS": "0"})
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(8192, hard)), hard))
    yield started
    started.stop()
    started.process.stdout.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def keys(service):
    """The keys of two organizations."""

    def key_of(token):
        return httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()["sk_key"]

    return [key_of(token_for(service.data)) for _ in range(2)]


def connected(url):
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=GONE_WITHIN_S)


def head(key, *lines):
    known = ["POST /v1/events HTTP/1.1", "host: x", f"authorization: Bearer {key}", "content-type: application/json"]
    return "\r\n".join([*known, *lines, "", ""]).encode()


def peak_mb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def replies_to(service, key):
    """Return the statuses that a well-behaved client gets on both ports."""
    with httpx.Client(headers=bearer(key) | {"content-type": "application/json"}) as client:
        return [
            client.post(f"{service.ingest_url}/v1/events", content=BATCH).status_code,
            client.post(f"{service.url}/v1/events", content=b'{"name": "view"}').status_code,
            client.get(f"{service.url}/v1/metrics/mau").status_code,
            client.get(f"{service.ingest_url}/healthz").status_code,
        ]


def has_ended(connection):
    """Return whether the server has closed the connection, with or without a reply."""
    connection.setblocking(False)  # noqa: FBT003 - its only parameter
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def test_slow_and_silent_clients_do_not_delay_others_and_are_disconnected(service, keys):
    hostile, good = keys
    connections = [connected(service.ingest_url) for _ in range(IDLE + SLOW_HEADERS + SLOW_BODIES)]
    for connection in connections[IDLE : IDLE + SLOW_HEADERS]:
        connection.sendall(b"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthoriz")
    for connection in connections[IDLE + SLOW_HEADERS :]:
        connection.sendall(head(hostile, "content-length: 1000000") + b"[")
    assert [replies_to(service, good) for _ in range(5)] == [[202, 202, 200, 200]] * 5
    eventually(lambda: all(has_ended(connection) for connection in connections), GONE_WITHIN_S)
    for connection in connections:
        connection.close()
    assert peak_mb(service.child_pids()["ingest-1"]) < MEMORY_MB_MAX
    assert replies_to(service, hostile) == [202, 202, 200, 200]


def test_connections_over_the_limit_keep_no_other_client_out(service):
    worker = service.child_pids()["ingest-1"]
    connections = [connected(service.ingest_url) for _ in range(CONNECTIONS_MAX + 50)]
    with connected(service.ingest_url) as probe:
        probe.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert probe.recv(100).startswith(b"HTTP/1.1 200")
    assert len(list(Path(f"/proc/{worker}/fd").iterdir())) < CONNECTIONS_MAX + 50
    for connection in connections:
        connection.close()
    assert peak_mb(worker) < MEMORY_MB_MAX


def chunked(content):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in content) + b"0\r\n\r\n"


SPACES = b" " * 2**20
BOMBS = {
    "a declared length beyond all bounds": (["content-length: 99999999999"], SPACES * 20, 413),
    "chunks without end": (["transfer-encoding: chunked"], chunked([SPACES] * 20), 413),
    "gzip": (["content-encoding: gzip"], gzip.compress(SPACES * 200), 413),
    "zstd": (["content-encoding: zstd"], zstandard.compress(SPACES * 200), 413),
    "gzip in gzip": (["content-encoding: gzip"], gzip.compress(gzip.compress(SPACES * 200)), 400),
    "gzip in many members": (["content-encoding: gzip"], gzip.compress(b"") * 50_000, 400),
    "zstd in many frames": (["content-encoding: zstd"], zstandard.compress(b" ") * 100_000, 400),
    "arrays in arrays": ([], b"[" * DEEP + b"]" * DEEP, 400),
    "objects in objects": ([], b'{"a":' * (DEEP // 5) + b"1" + b"}" * (DEEP // 5), 422),
    "props in props": ([], b'{"name":"view","props":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, 422),
    "a number of a million digits": ([], b'{"name":"view","props":{"a":' + b"9" * 1_000_000 + b"}}", 422),
}


@pytest.mark.parametrize("port", ["url", "ingest_url"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_decompression_bomb_is_refused_and_memory_stays_bounded(service, keys, bomb, port):
    lines, body, expected = BOMBS[bomb]
    if not any("transfer" in line or "length" in line for line in lines):
        lines = [*lines, f"content-length: {len(body)}"]
    with connected(getattr(service, port)) as connection:
        connection.sendall(head(keys[0], *lines))
        try:
            connection.sendall(body)
        except OSError:
            assert expected == 413, "reset while sending: allowed only for an oversized body"
        status = int(connection.recv(4096)[9:12] or expected)
    assert status in {expected, 400}
    assert peak_mb(service.child_pids()["ingest-1"]) < MEMORY_MB_MAX
    assert replies_to(service, keys[1]) == [202, 202, 200, 200]
