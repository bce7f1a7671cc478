"""Several machines on the same servers: CPU per event, freshness, and how long a failure is felt.

All of them share this host's cores, so throughput does not grow with the number of machines: what must not grow is the
CPU time of an event. The servers are those of the tests: three of NATS, PostgreSQL, and chDB over HTTP for ClickHouse.
"""

import http.client
import json
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from bench import bodies
from bench.driver import generate
from bench.machines import Cluster, Machine, cluster
from bench.report import Figure, at_most

SECONDS = 6.0
CONNECTIONS = 6
EVENTS = 500  # in a batch
PROBES = 20
PROBE_EVERY_S = 0.25
POLL_EVERY_S = 0.02
MACHINES_MAX = 3
WAIT_S_MAX = 120.0
GROWTH_MAX = 1.5  # generous: all parts share two cores
SILENT_S = 6.0  # how long events are sent after a NATS server is killed
BOTH_CORES = (0, 1)


def measure() -> Iterator[Figure]:
    with cluster() as made:
        api = made.start("api")
        for _ in range(2):
            made.start("loader")
        key = _key(made, api)
        costs = []
        for count in range(1, MACHINES_MAX + 1):
            made.start("ingest")
            _until(lambda: all(_accepts(each, key, "warm-up") for each in made.of("ingest")))
            before = _stored_bytes(made)
            events, took_s, cpu_s = _load(made, api, key, count)
            costs.append({part: each / events * 1e6 for part, each in cpu_s.items()})
            stored = {part: (each - before[part]) / events for part, each in _stored_bytes(made).items()}
            yield from _of_machines(count, events / took_s, costs[-1], stored)
            yield _freshness(made, api, key, count)
        for part in costs[0]:
            yield _growth(part, costs[0][part], costs[-1][part])
        totals = [sum(each.values()) for each in (costs[0], costs[-1])]
        growth = totals[1] / totals[0]
        floor = at_most(growth, GROWTH_MAX, f"of one at {MACHINES_MAX} machines")
        yield Figure("CPU per event, all parts", f"{totals[0]:.1f} -> {totals[1]:.1f} us", growth, floor)
        yield from _failures(made, api, key)


def _of_machines(count: int, rate: float, cost: dict[str, float], stored: dict[str, float]) -> Iterator[Figure]:
    name = f"{count} ingest machine{'s' if count > 1 else ''}"
    yield Figure(f"{name}, accepted and loaded", f"{rate / 1000:.1f}k events/s")
    yield Figure(f"{name}, CPU us per event", ", ".join(f"{part} {each:.1f}" for part, each in cost.items()))
    yield Figure(f"{name}, bytes per event", ", ".join(f"{part} {each:.0f}" for part, each in stored.items()))


def _growth(part: str, one: float, most: float) -> Figure:
    return Figure(f"CPU per event, {part}", f"{one:.1f} -> {most:.1f} us", most / one if one else None)


def _load(made: Cluster, api: Machine, key: str, count: int) -> tuple[int, float, dict[str, float]]:
    """Send to every ingest machine, and wait until all is loaded; return events, seconds and CPU time by part."""
    texts = [bodies.events(EVENTS) for _ in range(50)]
    counted, before, began = _events(api, key), made.cpu_s(), time.perf_counter()

    def send(place: int) -> int:
        port, first = made.of("ingest")[place].port, (count * MACHINES_MAX + place) << 20
        done = generate(port, key, texts, CONNECTIONS // count, SECONDS, BOTH_CORES, first_stamp=first)
        return int(done["accepted"]) * EVENTS

    with ThreadPoolExecutor(count) as threads:
        events = sum(threads.map(send, range(count)))
    _until(lambda: _events(api, key) >= counted + events)
    after = made.cpu_s()
    return events, time.perf_counter() - began, {part: after[part] - each for part, each in before.items()}


def _freshness(made: Cluster, api: Machine, key: str, count: int) -> Figure:
    """Send probes to the machines in turn while one reader polls."""
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    machines = made.of("ingest")

    def send() -> None:
        for number in range(PROBES):
            name = f"probe_{count}_{number}"
            if not _accepts(machines[number % count], key, name):
                raise AssertionError(f"{name} was refused")
            sent[name] = time.perf_counter()
            time.sleep(PROBE_EVERY_S)

    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(send)
        ends_at = time.monotonic() + WAIT_S_MAX
        while not sending.done() or len(seen) < PROBES:
            for name in _names(api, key) & sent.keys() - seen.keys():
                seen[name] = time.perf_counter()
            if time.monotonic() > ends_at:
                raise AssertionError("the probes were not readable in time")
            time.sleep(POLL_EVERY_S)
        sending.result()
    delays = [seen[name] - at for name, at in sent.items()]
    text = f"p50 {statistics.median(delays):.2f} s, slowest of {PROBES} {max(delays):.2f} s"
    return Figure(f"{count} ingest machine{'s' if count > 1 else ''}, from sent to readable", text)


def _failures(made: Cluster, api: Machine, key: str) -> Iterator[Figure]:
    yield Figure("loader killed, until the next event is readable", _after(made, api, key, "killed", made.kill))
    made.start("loader")
    paused = made.loader()
    text = _after(made, api, key, "paused", lambda machine: machine.signal(signal.SIGSTOP))
    paused.signal(signal.SIGCONT)
    yield Figure("loader paused, until the next event is readable", text)
    yield Figure("ingest machine killed, until the next event is accepted", _without_one(made, key))
    yield Figure("NATS leader killed, longest time between accepted events", _without_leader(made, key))


def _after(made: Cluster, api: Machine, key: str, name: str, fault: Callable[[Machine], None]) -> str:
    """Break the machine that loads, send an event, and time it until it can be read."""
    fault(made.loader())
    began = time.perf_counter()
    _until(lambda: _accepts(made.of("ingest")[0], key, f"after_{name}"))
    _until(lambda: f"after_{name}" in _names(api, key))
    return f"{time.perf_counter() - began:.1f} s"


def _without_one(made: Cluster, key: str) -> str:
    """Kill an ingest machine; a client that tries one after the other begins with it."""
    gone, *others = made.of("ingest")
    made.kill(gone)
    began = time.perf_counter()
    _until(lambda: any(_accepts(each, key, "other") for each in (gone, *others)))
    return f"{time.perf_counter() - began:.2f} s"


def _without_leader(made: Cluster, key: str) -> str:
    """Kill the NATS server that leads a stream of the log, and send one event after the other."""
    leader = next(
        stream["cluster"]["leader"]
        for account in made.nats.monitor(0, "/jsz?streams=true&accounts=true")["account_details"]
        for stream in account["stream_detail"]
        if stream["name"] == "MAUVE-240"
    )
    made.nats.kill(made.nats.index_of(leader))
    began = last = time.perf_counter()
    longest = 0.0
    while time.perf_counter() - began < SILENT_S or last == began:
        if _accepts(made.of("ingest")[0], key, "during"):
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    return f"{longest:.2f} s"


def _stored_bytes(made: Cluster) -> dict[str, float]:
    """Return what the servers keep of events: each NATS server, and ClickHouse."""
    parts = made.clickhouse.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'bench'")
    return {"each NATS server": made.nats.monitor(0, "/jsz")["storage"], "ClickHouse": float(parts)}


def _key(made: Cluster, api: Machine) -> str:
    org = made.command("org", "create", "Bench")["org_id"]
    token = made.command("token", "mint", "--org", org, "--scopes", "apps:write")["token"]

    def create() -> str | None:
        status, body = _request(api.port, "POST", "/v1/apps", token, {"name": "Bench"})
        return body["sk_key"] if status == http.HTTPStatus.CREATED else None

    return _until(create)


def _accepts(machine: Machine, key: str, name: str) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return _request(machine.port, "POST", "/v1/events", key, {"name": name})[0] == http.HTTPStatus.ACCEPTED
    return False


def _rows(api: Machine, key: str) -> list[dict]:
    status, body = _request(api.port, "GET", "/v1/metrics/event_names", key)
    return body["data"] if status == http.HTTPStatus.OK else []


def _names(api: Machine, key: str) -> set[str]:
    return {row["name"] for row in _rows(api, key)}


def _events(api: Machine, key: str) -> int:
    """Return how many events of the generator are counted."""
    return sum(row["count"] for row in _rows(api, key) if row["name"] in bodies.NAMES)


def _request(port: int, method: str, path: str, key: str, body: dict | None = None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"{}")
    finally:
        connection.close()


def _until(check: Callable[[], object], wait_s_max: float = WAIT_S_MAX):
    ends_at = time.monotonic() + wait_s_max
    while not (value := check()):
        if time.monotonic() > ends_at:
            raise AssertionError("the condition was not met in time")
        time.sleep(POLL_EVERY_S)
    return value
