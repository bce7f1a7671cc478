"""The same work on the embedded engines and on servers, one after the other in one run.

The servers are those of the tests: PostgreSQL, three NATS servers, and an HTTP server over chDB in place of ClickHouse.
They share this machine's cores with the service and the generator, so the ratios are a lower bound.
"""

import base64
import http.client
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import bodies
from bench.driver import app_key, generate
from bench.report import Figure
from bench.service import Running, service

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the servers of the tests

SECONDS = 6.0
CONNECTIONS = 8
EVENTS, PAYMENTS = 500, 20  # in a batch
PROBES = 30
POLL_EVERY_S = 0.02
MISSES = 15
METRICS = ("mau", "event_names", "revenue")
BOTH_CORES = (0, 1)


class Measured(NamedTuple):
    payments_per_s: float
    batches_per_s: float
    freshness_p50_s: float
    freshness_p99_s: float
    misses_ms: dict[str, float]


def measure() -> Iterator[Figure]:
    embedded = _measure_with({})
    with ExitStack() as open_servers:
        servers = _measure_with(_start_servers(open_servers))
    yield _compared("payments, batches of 20", embedded.payments_per_s, servers.payments_per_s, "/s")
    yield _compared("acknowledged batches of 500 events", embedded.batches_per_s, servers.batches_per_s, "/s")
    for name in ("freshness_p50_s", "freshness_p99_s"):
        before, after = getattr(embedded, name), getattr(servers, name)
        yield Figure(name.removesuffix("_s").replace("_", ", "), f"{before:.2f} s, on servers {after:.2f} s")
    for metric, before in embedded.misses_ms.items():
        after = servers.misses_ms[metric]
        yield Figure(f"miss of {metric}", f"{before:.1f} ms, on servers {after:.1f} ms", after / before)


def _compared(name: str, embedded: float, servers: float, unit: str) -> Figure:
    return Figure(name, f"{embedded:.0f} {unit}, on servers {servers:.0f} {unit}", servers / embedded)


def _start_servers(opened: ExitStack) -> dict[str, str]:
    from support.clickhouse import ClickHouse  # noqa: PLC0415 - needs the path above
    from support.nats import Nats  # noqa: PLC0415
    from support.postgres import Postgres  # noqa: PLC0415

    nats = opened.enter_context(Nats(servers=3))
    return {
        "MAUVE_DATABASE_URL": opened.enter_context(Postgres()).create("bench"),
        "MAUVE_WAREHOUSE_URL": opened.enter_context(ClickHouse()).create("bench"),
        "MAUVE_STREAM_URL": nats.url,
        "MAUVE_STREAM_MONITOR_URL": nats.monitor_url,
        "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
    }


def _measure_with(servers: dict[str, str]) -> Measured:
    settings = {"MAUVE_READ_CACHE_SECONDS": "0", **servers}
    with service("--workers", "1", settings=settings) as running:
        key = app_key(running)
        api = http.client.HTTPConnection("127.0.0.1", running.port)
        payments = [bodies.payments(PAYMENTS) for _ in range(50)]
        paid = generate(running.ingest_port, key, payments, CONNECTIONS, SECONDS, BOTH_CORES)
        batches = [bodies.events(EVENTS) for _ in range(50)]
        sent = generate(running.ingest_port, key, batches, CONNECTIONS, SECONDS, BOTH_CORES)
        _until_loaded(api, key, int(sent["accepted"]) * EVENTS)
        delays = sorted(_delay(running, api, key, f"probe_{number}") for number in range(PROBES))
        misses = {metric: _miss_ms(api, key, metric) for metric in METRICS}
    return Measured(
        payments_per_s=paid["accepted"] * PAYMENTS / paid["seconds"],
        batches_per_s=sent["accepted"] / sent["seconds"],
        freshness_p50_s=statistics.median(delays),
        freshness_p99_s=delays[-1],
        misses_ms=misses,
    )


def _until_loaded(api: http.client.HTTPConnection, key: str, events: int) -> None:
    """Wait until every acknowledged event is counted; more than that is an error, too."""
    while (found := sum(row["count"] for row in _read(api, key, "event_names")["data"])) < events:
        time.sleep(0.2)
    if found != events:
        raise AssertionError(f"{events} events were acknowledged and {found} are counted")


def _delay(running: Running, api: http.client.HTTPConnection, key: str, name: str) -> float:
    ingest = http.client.HTTPConnection("127.0.0.1", running.ingest_port)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    ingest.request("POST", "/v1/events", json.dumps({"name": name}), headers)
    if (reply := ingest.getresponse()).status != http.HTTPStatus.ACCEPTED:
        raise AssertionError(reply.read())
    ingest.close()
    began = time.perf_counter()
    while name not in {row["name"] for row in _read(api, key, "event_names")["data"]}:
        time.sleep(POLL_EVERY_S)
    return time.perf_counter() - began


def _miss_ms(api: http.client.HTTPConnection, key: str, metric: str) -> float:
    took = []
    for _ in range(MISSES):
        began = time.perf_counter()
        _read(api, key, metric)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def _read(api: http.client.HTTPConnection, key: str, metric: str) -> dict:
    api.request("GET", f"/v1/metrics/{metric}", headers={"authorization": f"Bearer {key}"})
    reply = api.getresponse()
    body = reply.read()
    if reply.status != http.HTTPStatus.OK:
        raise AssertionError(body)
    return json.loads(body)
