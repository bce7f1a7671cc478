"""The loader, on an empty warehouse and with as many ids as weeks of use leave in the deduplication window."""

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench import bodies
from bench.driver import app_key, cpu_s, generate, stored
from bench.report import Figure, at_least, at_most
from bench.service import Running, service

BATCH = 500
IDS = 50_000_000
SUSTAINED_S = 30.0
OFFERED_EVENTS_PER_S = 300_000
STEADY_EVENTS_PER_S = 50_000
PROBES = 500  # enough for the 99th percentile to be more than the two unluckiest
PROBE_EVERY_S = 0.1
POLL_EVERY_S = 0.05
PROBE_TIMEOUT_S = 180
FLUSH_S = 2.0  # the default
BOTH_CORES = (0, 1)


class Loaded(NamedTuple):
    """The measurements on one warehouse."""

    started_in_s: float  # until the first event is stored
    events_per_s: float
    last_lag_s: float
    cpu_us: dict[str, float]  # per event, by process
    peak_mb: float
    freshness_p50_s: float
    freshness_p99_s: float


def measure() -> Iterator[Figure]:
    empty = _measure_with(0)
    yield Figure(
        f"sustained, {OFFERED_EVENTS_PER_S // 1000}k events/s offered for {SUSTAINED_S:.0f} s",
        f"{empty.events_per_s / 1000:.0f}k events/s stored, the last {empty.last_lag_s:.1f} s late",
        floor=at_least(empty.events_per_s, 150_000, "events/s"),
        aim=at_least(empty.events_per_s, 250_000, "events/s"),
    )
    yield Figure("CPU time per event", ", ".join(f"{name} {us:.1f} us" for name, us in empty.cpu_us.items()))
    yield Figure(
        "resident memory while loading, core", f"{empty.peak_mb:.0f} MB", floor=at_most(empty.peak_mb, 1200, "MB")
    )
    yield Figure(
        f"freshness at {STEADY_EVENTS_PER_S // 1000}k events/s: accepted to readable",
        f"p50 {empty.freshness_p50_s:.2f} s, p99 {empty.freshness_p99_s:.2f} s",
        floor=at_most(empty.freshness_p99_s, FLUSH_S + POLL_EVERY_S, "s"),
    )
    full = _measure_with(IDS)
    ids = f"{IDS // 1_000_000} million ids"
    ratio = full.events_per_s / empty.events_per_s
    yield Figure(
        f"sustained, with {ids} in the window",
        f"{full.events_per_s / 1000:.0f}k events/s stored, the last {full.last_lag_s:.1f} s late",
        ratio,
        floor=at_least(ratio, 0.9, "of the empty warehouse"),
    )
    ratio = empty.freshness_p99_s / full.freshness_p99_s
    yield Figure(
        f"freshness, with {ids}",
        f"p50 {full.freshness_p50_s:.2f} s, p99 {full.freshness_p99_s:.2f} s",
        ratio,
        floor=at_least(ratio, 0.9, "of the empty warehouse"),
    )
    yield Figure(
        f"start-up with {ids}: until events are loaded",
        f"{full.started_in_s:.1f} s (empty: {empty.started_in_s:.1f} s)",
        floor=at_most(full.started_in_s, 10, "s"),
    )
    yield Figure(f"resident memory with {ids}, core", f"{full.peak_mb:.0f} MB (empty: {empty.peak_mb:.0f} MB)")


def _measure_with(ids: int) -> Loaded:
    settings = {"MAUVE_READ_CACHE_SECONDS": "0"}
    with service("--workers", "1", settings=settings, prepare=lambda data: _fill(data, ids)) as running:
        key = app_key(running)
        begins_to_load_s = running.started_in_s + _wait_for_loader(running, key)
        began = time.perf_counter()
        cpu_before = _cpu(running)
        texts = [bodies.events(BATCH) for _ in range(200)]
        done = generate(running.ingest_port, key, texts, 8, SUSTAINED_S, BOTH_CORES, rate=OFFERED_EVENTS_PER_S / BATCH)
        peak_mb = running.resident_mb("core")
        events = 1 + int(done["accepted"]) * BATCH
        _until_stored(running, events)
        took_s = time.perf_counter() - began
        cpu_us = {name: (after - cpu_before[name]) / events * 1e6 for name, after in _cpu(running).items()}
        p50, p99 = _freshness(running, key, texts, first_stamp=int(done["accepted"]))
    return Loaded(begins_to_load_s, events / took_s, took_s - done["seconds"], cpu_us, peak_mb, p50, p99)


def _fill(data: Path, ids: int) -> None:
    if ids:
        command = [sys.executable, "-m", "bench.many_ids", str(data / "warehouse"), str(ids)]
        subprocess.run(command, check=True)


def _wait_for_loader(running: Running, key: str) -> float:
    """Send one event and return how long it took to store: by then the loader has read its ids."""
    began = time.perf_counter()
    ingest = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    _send_one(ingest, key, "hello")
    _until_stored(running, 1)
    return time.perf_counter() - began


def _until_stored(running: Running, events: int) -> None:
    while stored(running) < events:
        time.sleep(0.05)


def _cpu(running: Running) -> dict[str, float]:
    return {name: cpu_s(running.pids[name]) for name in ("core", "ingest-1")}


def _freshness(running: Running, key: str, texts: list[str], first_stamp: int) -> tuple[float, float]:
    """Send uniquely named events alongside a steady load, and poll the API until it returns each name."""
    seconds = PROBES * PROBE_EVERY_S + 5
    rate = STEADY_EVENTS_PER_S / BATCH
    with ThreadPoolExecutor(1) as thread:
        port = running.ingest_port
        load = thread.submit(generate, port, key, texts, 8, seconds, BOTH_CORES, rate=rate, first_stamp=first_stamp)
        time.sleep(2)
        delays = sorted(_delays(running, key))
        load.result()
    return statistics.median(delays), delays[int(len(delays) * 0.99)]


def _delays(running: Running, key: str) -> list[float]:
    ingest = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    api = http.client.HTTPConnection("127.0.0.1", running.port)
    began = time.perf_counter()
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    while len(seen) < PROBES and time.perf_counter() - began < PROBE_TIMEOUT_S:
        while len(sent) < PROBES and time.perf_counter() - began > len(sent) * PROBE_EVERY_S:
            name = f"probe_{len(sent)}"
            _send_one(ingest, key, name)
            sent[name] = time.perf_counter()
        names = _names(api, key)
        now = time.perf_counter()
        for name in names & sent.keys() - seen.keys():
            seen[name] = now
        time.sleep(POLL_EVERY_S)
    return [seen[name] - sent[name] for name in sent]


def _send_one(ingest: http.client.HTTPConnection, key: str, name: str) -> None:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    ingest.request("POST", "/v1/events", json.dumps({"name": name}), headers)
    if (reply := ingest.getresponse()).status != 202:
        raise AssertionError(reply.read())
    reply.read()


def _names(api: http.client.HTTPConnection, key: str) -> set[str]:
    api.request("GET", "/v1/metrics/event_names", headers={"authorization": f"Bearer {key}"})
    reply = api.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise AssertionError(body)
    return {row["name"] for row in json.loads(body)["data"]}
