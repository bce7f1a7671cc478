"""Measure what a small server needs: memory and disk, before and after a million events."""

import http.client
import subprocess
import time
from collections.abc import Iterator

from bench import bodies
from bench.report import Figure
from bench.service import Running, service

EVENTS = 1_000_000
BATCH = 500
REST_S = 30.0  # After the last event is loaded: merges have ended, and memory is what stays.


def measure() -> Iterator[Figure]:
    """Yield resident memory and the size of the data directory."""
    with service("--workers", "1") as running:
        key = running.operator("app", "create", "Footprint", "--org", _organization(running))["sk_key"]
        time.sleep(REST_S)
        yield _memory(running, "idle")
        yield _disk(running, "idle")
        _send(running, key)
        _wait_until_loaded(running)
        yield _memory(running, "right after a million events")
        time.sleep(REST_S)
        yield _memory(running, "half a minute later")
        yield _disk(running, "after a million events")


def _organization(running: Running) -> str:
    return running.operator("org", "create", "Footprint")["org_id"]


def _send(running: Running, key: str) -> None:
    """Send batches one after another on one connection, as a client library does."""
    connection = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for number in range(EVENTS // BATCH):
        body = bodies.events(BATCH).replace(bodies.STAMP, f"{number:08d}")
        connection.request("POST", "/v1/events", body, headers)
        response = connection.getresponse()
        response.read()
        if response.status != http.client.ACCEPTED:
            raise RuntimeError(f"a batch was answered with {response.status}: run the benchmark on an idle machine")
    connection.close()


def _wait_until_loaded(running: Running) -> None:
    warehouse = running.data / "warehouse"
    sizes = [-1, -2]
    while sizes[-1] != sizes[-2]:  # Nothing is written for five seconds.
        time.sleep(5)
        sizes.append(_megabytes(str(warehouse)))


def _memory(running: Running, when: str) -> Figure:
    parts = {name: running.resident_mb(name) for name in running.pids}
    detail = ", ".join(f"{name} {size:.0f}" for name, size in parts.items())
    return Figure(f"resident memory, {when}", f"{sum(parts.values()):.0f} MB ({detail})")


def _disk(running: Running, when: str) -> Figure:
    parts = {name: _megabytes(str(running.data / name)) for name in ("log", "warehouse")}
    detail = ", ".join(f"{name} {size}" for name, size in parts.items())
    return Figure(f"data directory, {when}", f"{_megabytes(str(running.data))} MB ({detail})")


def _megabytes(path: str) -> int:
    """Return the size on disk. `du` exits 1 when a merge removes a file meanwhile; its sum is still good."""
    done = subprocess.run(["du", "-sm", path], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0])
