"""The query plane: cost of a cache hit, time of a miss as events grow, and accuracy of distinct counts."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator

from bench.driver import cpu_us_per_get, empty_core, pin
from bench.report import Figure, at_least, at_most
from bench.service import Running, service

PROCESSES, ROUNDS, ROUND_S = 5, 3, 1.0
CONNECTIONS = 32
HIT_RATIO_MIN = 0.6
GROWTH_MAX = 2.0
GROWTH_JUDGED = ("mau", "dau", "signups", "revenue", "mrr")
FULL = 100  # million events: the size at which absolute times have a floor
MS_MAX = {
    name: 150 if name.startswith("event_") else 50
    for name in (*GROWTH_JUDGED, "event_names", "event_count", "event_series")
}
STANDARD_ERROR_PERCENT = 0.5
MRR_MS_MAX = {"30 days": 50, "10 years": 300}
READ_MB_MAX = 64


def measure(millions: list[int]) -> Iterator[Figure]:
    yield _hits()
    output = subprocess.run(
        [sys.executable, "-m", "bench.read_misses", *map(str, millions)], stdout=subprocess.PIPE, check=True
    ).stdout
    yield from _mrr_history()
    found = json.loads(output)
    yield from _misses(found["misses_ms"])
    for users, error in found["errors_percent"].items():
        name = f"distinct counts, {int(users):,} users"
        yield Figure(name, f"{error:.3f} % off (rms)", floor=at_most(error, STANDARD_ERROR_PERCENT, "%"))


def _hits() -> Figure:
    """Alternate between cache hits and an empty handler, in several processes of each, and compare the cheapest rounds.

    The speed of a shared machine drifts within seconds, and other work can only make a round dearer. So can the place
    that a process happens to get in memory: the same code takes up to a third longer in some processes than in others.
    """
    hits, empty_rounds = zip(*(pair for _ in range(PROCESSES) for pair in _rounds_of_hits()), strict=True)
    (cost, rate), (empty, _) = min(hits), min(empty_rounds)
    ratio = empty / cost
    return Figure(
        "cache hits",
        f"{rate:.0f} /s, {cost:.0f} us of CPU each (empty handler: {empty:.0f})",
        ratio,
        at_least(ratio, HIT_RATIO_MIN, "of the empty handler"),
    )


def _rounds_of_hits() -> Iterator[list[tuple[float, float]]]:
    settings = {"MAUVE_INGEST_FLUSH_SECONDS": "30"}
    with service("--workers", "1", settings=settings) as running, empty_core() as empty_server:
        key = _app_key(running)
        core = running.pids["core"], running.port
        pin(running.pids["core"])
        for _ in range(ROUNDS):
            yield [
                cpu_us_per_get(*server, "/v1/metrics/mau", key, ROUND_S, CONNECTIONS) for server in (core, empty_server)
            ]


def _mrr_history() -> Iterator[Figure]:
    output = subprocess.run([sys.executable, "-m", "bench.mrr_reads"], stdout=subprocess.PIPE, check=True).stdout
    found = json.loads(output)
    for window, took_ms in found["misses_ms"].items():
        limit = MRR_MS_MAX.get(window)
        floor = None if limit is None else at_most(took_ms, limit, "ms")
        yield Figure(f"miss of mrr_history, {window}, 1 million versions", f"{took_ms:.1f} ms", floor=floor)
    peak_mb = found["peak_mb"]
    name = "memory of these reads, above baseline"
    yield Figure(name, f"{peak_mb:.0f} MB", floor=at_most(peak_mb, READ_MB_MAX, "MB"))
    yield Figure("recording 1 million versions of subscriptions", f"{found['built_s']:.1f} s")


def _misses(by_size: dict[str, dict[str, float]]) -> Iterator[Figure]:
    sizes = sorted(by_size, key=int)
    for metric in by_size[sizes[0]]:
        times = [by_size[size][metric] for size in sizes]
        growth = times[-1] / times[0]
        shown = " / ".join(f"{time:.1f}" for time in times) + f" ms at {' / '.join(sizes)} million events"
        name = f"miss of {metric}"
        is_judged = metric in GROWTH_JUDGED and len(sizes) > 1
        yield Figure(name, shown, growth, at_most(growth, GROWTH_MAX, "times") if is_judged else None)
        if int(sizes[-1]) >= FULL and metric in MS_MAX:
            floor = at_most(times[-1], MS_MAX[metric], "ms")
            yield Figure(f"{name} at {sizes[-1]} million", f"{times[-1]:.1f} ms", floor=floor)


def _app_key(running: Running) -> str:
    """Create an app, read its `mau` once so that it is cached, and return the app's key."""
    org = running.operator("org", "create", "Bench")["org_id"]
    token = running.operator("token", "mint", "--org", org, "--scopes", "apps:write")["token"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    connection.request("POST", "/v1/apps", '{"name": "Bench"}', {"authorization": f"Bearer {token}"})
    key = json.loads(connection.getresponse().read())["sk_key"]
    connection.request("GET", "/v1/metrics/mau", headers={"authorization": f"Bearer {key}"})
    if connection.getresponse().read()[:10] != b'{"ok":true':
        raise AssertionError("mau cannot be read")
    return key
