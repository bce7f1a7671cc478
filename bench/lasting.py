"""What stays: how soon an event can be read, what it takes on disk, how long a backlog takes to be loaded."""

import http.client
import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench import bodies
from bench.driver import app_key, generate, stored
from bench.report import Figure, at_most
from bench.service import Running, service

BATCH = 500
PROBES = 150
PROBE_EVERY_S = 0.1
LOOK_EVERY_S = 0.05
FLUSH_S = 2.0  # the default
BACKLOG_BYTES = 1_000_000_000
PATIENCE_S = 180


def measure() -> Iterator[Figure]:
    with service("--workers", "1", settings={"MAUVE_READ_CACHE_SECONDS": "0"}) as running:
        yield _freshness(running)
    with service("--workers", "1") as running:
        yield from _recovery(running)


def _freshness(running: Running) -> Figure:
    """Send events at a steady pace, each with a name of its own, and look for the names in the API's answers."""
    key = app_key(running)
    ingest = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    api = http.client.HTTPConnection("127.0.0.1", running.port)
    began = time.perf_counter()
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    while len(seen) < PROBES and time.perf_counter() - began < PATIENCE_S:
        while len(sent) < PROBES and time.perf_counter() - began > len(sent) * PROBE_EVERY_S:
            name = f"probe_{len(sent)}"
            _accepted(ingest, key, name)
            sent[name] = time.perf_counter()
        names = _names(api, key)
        now = time.perf_counter()
        for name in names - seen.keys():
            seen[name] = now
        time.sleep(LOOK_EVERY_S)
    waits = sorted(seen[name] - sent[name] for name in sent)
    p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
    return Figure(
        "freshness: accepted to readable",
        f"p50 {p50:.2f} s, p99 {p99:.2f} s",
        floor=at_most(p99, FLUSH_S + LOOK_EVERY_S, "s"),
    )


def _recovery(running: Running) -> Iterator[Figure]:
    """Fill the queue while the core stands still, kill the core, and wait until everything is stored."""
    key = app_key(running)
    core = running.pids["core"]
    os.kill(core, signal.SIGSTOP)
    texts = [bodies.events(BATCH) for _ in range(200)]
    batches = BACKLOG_BYTES // len(texts[0])
    accepted = 0
    while accepted < batches:
        done = generate(running.ingest_port, key, texts, 8, 5.0, (0, 1), first_stamp=accepted)
        accepted += int(done["accepted"])
    began = time.perf_counter()
    os.kill(core, signal.SIGKILL)
    _until_ready(running.port)
    ready_s = time.perf_counter() - began
    events = accepted * BATCH
    while stored(running) < events:
        time.sleep(0.1)
    took_s = time.perf_counter() - began
    size = f"{accepted * len(texts[0]) / 1e9:.1f} GB"
    yield Figure("core killed, answering again", f"{ready_s:.1f} s with a backlog of {size}")
    yield Figure("recovery of that backlog", f"{took_s:.0f} s, {events / took_s / 1000:.0f}k events/s")
    on_disk = _bytes_in(running.data / "warehouse")
    yield Figure("warehouse, right after loading", f"{on_disk / events:.0f} bytes an event")


def _bytes_in(folder: Path) -> int:
    """Add up the files; those that a merge removes meanwhile do not count."""
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(directory, name).stat().st_size
    return size


def _accepted(ingest: http.client.HTTPConnection, key: str, name: str) -> None:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    ingest.request("POST", "/v1/events", json.dumps({"name": name}), headers)
    if (reply := ingest.getresponse()).status != 202:
        raise AssertionError(reply.read())
    reply.read()


def _names(api: http.client.HTTPConnection, key: str) -> set[str]:
    api.request("GET", "/v1/metrics/event_names", headers={"authorization": f"Bearer {key}"})
    reply = json.loads(api.getresponse().read())
    return {row["name"] for row in reply.get("data", ())}


def _until_ready(port: int) -> None:
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
