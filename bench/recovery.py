"""Recovery after the core is killed: time to load a backlog, bytes per event on disk, and growth with stored events."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench import bodies
from bench.driver import app_key, generate, stored
from bench.report import Figure, at_most
from bench.service import Running, service

BATCH = 500
BACKLOG_BYTES = 1_000_000_000
GROWTH_MAX = 2.0


def measure(millions: list[int]) -> Iterator[Figure]:
    with service("--workers", "1") as running:
        yield from _recovery(running)
    yield from _interrupted_steps(millions)


def _interrupted_steps(millions: list[int]) -> Iterator[Figure]:
    """Repeat an interrupted step of 50,000 events, and look up which of them are stored, as stored events grow."""
    command = [sys.executable, "-m", "bench.loader_recovery", *map(str, millions)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    first: dict[str, float] = {}
    for name, took_ms in found.items():
        growth = took_ms["recovery"] / first.setdefault(name.split(", ")[1], took_ms["recovery"])
        text = f"{took_ms['recovery']:.0f} ms, {took_ms['look']:.0f} of it the lookup (a scan: {took_ms['scan']:.0f})"
        yield Figure(f"interrupted step, {name}", text, growth, at_most(growth, GROWTH_MAX, "x the smallest"))


def _recovery(running: Running) -> Iterator[Figure]:
    """Fill the queue while the core is stopped, kill the core, and wait until everything is stored."""
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
    yield Figure("core killed, time until it answers", f"{ready_s:.1f} s with a backlog of {size}")
    yield Figure("core killed, time to load the backlog", f"{took_s:.0f} s, {events / took_s / 1000:.0f}k events/s")
    on_disk = _bytes_in(running.data / "warehouse")
    yield Figure("warehouse, right after loading", f"{on_disk / events:.0f} bytes per event")


def _bytes_in(folder: Path) -> int:
    """Return the total size; skip files that a merge removes meanwhile."""
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(directory, name).stat().st_size
    return size


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
