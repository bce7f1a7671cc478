"""Overload: ten times the capacity for a minute.

One worker has a CPU core to itself; the generator and the core process share the other. All three run at a higher
priority than other programs where the system allows it, or a busy machine would measure itself.
Capacity is what the worker accepts from callers that wait for each reply, measured first. Then come half of it, ten
times it, and half of it again. The load is heavy: batches of 500, a third of them payments. At ten times the capacity,
a refusal may cost only a fiftieth of an accepted batch, and reading a request's headers alone takes about 40 us of CPU:
batches without payments are validated so fast that no server on one core could refuse nine times as many.

Five quiet organizations send a fifth of the capacity together, all the time; the noisy one sends the rest. Other
clients read from the core and the control plane throughout. The worker's memory is limited to a little more than it
uses at rest: an allocation beyond that fails, and the worker dies. (The core's warehouse engine reserves far more than
it uses, so its resident memory is measured instead.)
"""

import http.client
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from bench import bodies
from bench.driver import DRIVING_CORE, SERVED_CORE, pin_threads, stored
from bench.open_loop import CUT_OFF, NOT_SENT
from bench.report import Figure, at_least, at_most
from bench.service import Running, service

BATCH = 500
PAYMENT_EVERY = 3
CAPACITY_S = 8.0
CALLERS = 32
PHASES_S = {"half load": 10.0, "ten times": 60.0, "half again": 15.0}
QUIET = 5
QUIET_SHARE = 0.2
PROBES = ("core", "control plane")
PROBES_PER_S = 5.0
WATCHED = ("ingest-1", "core")
WORKER_ROOM_MB = 250
CORE_MB_MAX = 1200
NICE = {"ingest-1": -10, "core": -10}
STORED_WITHIN_S = 300.0

Row = tuple[int, int, float, float, int, bool]


def measure() -> Iterator[Figure]:
    with service("--workers", "1") as running:
        keys, token = _keys(running), _token(running)
        _set_priorities_and_limits(running)
        capacity, accepted = _capacity(running, keys[0])
        yield Figure("capacity, batches of 500, a third of them payments", f"{capacity:.0f} /s")
        with _sampled_memory(running) as resident:
            results = _drive(running, keys, token, capacity)
        runs = Run(results["rows"], capacity)
        yield from runs.figures()
        yield Figure("generator delay, p99", f"{results['late_p99_ms']:.0f} ms")
        yield from _memory(resident)
        yield _acknowledged(running, accepted + runs.accepted_total())


class Run:
    """The results, by phase and by client."""

    def __init__(self, rows: list[Row], capacity: float) -> None:
        self._rows = rows
        self._capacity = capacity

    def figures(self) -> Iterator[Figure]:
        names = list(PHASES_S)
        offered = [len(self._of(phase)) / seconds for phase, seconds in enumerate(PHASES_S.values())]
        rates = ", ".join(f"{name} {rate:.0f} /s" for name, rate in zip(names, offered, strict=True))
        yield Figure("offered load", rates)
        goodput = len(_accepted(self._of(1))) / PHASES_S["ten times"]
        ratio = goodput / self._capacity
        yield Figure("goodput at ten times capacity", f"{goodput:.0f} /s", ratio, at_least(ratio, 0.8, "of capacity"))
        latency = _p99(_accepted(self._of(1)))
        yield Figure("latency of accepted batches, p99", f"{latency:.0f} ms", floor=at_most(latency, 500, "ms"))
        yield from self._refusals()
        yield from self._probes()
        yield self._fairness()
        yield self._recovery()

    def accepted_total(self) -> int:
        return sum(len(_accepted(self._of(phase))) for phase in range(len(PHASES_S)))

    def _of(self, phase: int, streams: range = range(QUIET + 1)) -> list[Row]:
        return [row for row in self._rows if row[0] == phase and row[1] in streams]

    def _refusals(self) -> Iterator[Figure]:
        rows = self._of(1)
        refused = [row for row in rows if row[4] in {429, 503}]
        with_retry = sum(row[5] for row in refused) / max(1, len(refused))
        latency = _p99(refused)
        figure = f"{len(refused)} of {len(rows)}, p99 {latency:.0f} ms, p50 {_p50(refused):.0f} ms"
        yield Figure("refused at ten times capacity", figure, floor=at_most(latency, 50, "ms"))
        yield Figure("refusals with Retry-After", f"{with_retry:.1%}", with_retry, at_least(with_retry, 1))
        cut, unsent = (sum(row[4] == status for row in rows) for status in (CUT_OFF, NOT_SENT))
        strange = len(rows) - len(refused) - len(_accepted(rows)) - cut - unsent
        text = f"{cut} cut off, {unsent} found no connection, {strange} other"
        yield Figure("neither accepted nor refused", text, floor=at_most(cut + unsent + strange, 0))

    def _probes(self) -> Iterator[Figure]:
        for place, name in enumerate(PROBES, QUIET + 1):
            rows = self._of(1, range(place, place + 1))
            latency, slowest = _p99(rows), max(row[3] for row in rows)
            text = f"p99 {latency:.0f} ms, slowest {slowest:.0f} ms"
            yield Figure(f"{name} during the overload", text, floor=at_most(latency, 200, "ms (p99)"))
            failed = len(rows) - len(_accepted(rows))
            yield Figure(f"{name} during the overload, failed", f"{failed} of {len(rows)}", floor=at_most(failed, 0))

    def _fairness(self) -> Figure:
        quiet = self._of(1, range(1, QUIET + 1))
        share = len(_accepted(quiet)) / len(quiet)
        text = f"{share:.1%} accepted, p99 {_p99(_accepted(quiet)):.0f} ms"
        return Figure("fairness: batches of quiet organizations", text, share, at_least(share, 0.9))

    def _recovery(self) -> Figure:
        """Find the first three seconds in a row in which nearly all are accepted within twice the normal latency."""
        began = sum(list(PHASES_S.values())[:2])
        normal_ms = 2 * _p99(_accepted(self._of(0)))
        rows, good = self._of(2), []
        for second in range(int(PHASES_S["half again"])):
            asked = [row for row in rows if second <= row[2] - began < second + 1]
            good.append(sum(row[4] == 202 and row[3] <= normal_ms for row in asked) >= 0.95 * len(asked))
        after = next((second for second in range(len(good) - 2) if all(good[second : second + 3])), len(good))
        text = f"after {after} s nearly all are accepted within {normal_ms:.0f} ms"
        return Figure("recovery after the overload", text, floor=at_most(after, 10, "s"))


def _capacity(running: Running, key: str) -> tuple[float, int]:
    """Return batches per second, and the number accepted in total."""
    done = [
        _open_loop(_generator_config(running, [key], mark) | {"callers": CALLERS, "seconds": CAPACITY_S})
        for mark in "wc"
    ]
    return done[1]["accepted"] / done[1]["seconds"], sum(each["accepted"] for each in done)


def _generator_config(running: Running, keys: list[str], mark: str) -> dict:
    texts = _marked([bodies.some_payments(BATCH, PAYMENT_EVERY) for _ in range(10)], mark)
    streams = [{"port": running.ingest_port, "path": "/v1/events", "key": key, "bodies": texts} for key in keys]
    return {"cores": [DRIVING_CORE], "streams": streams}


def _open_loop(config: dict) -> dict:
    command = [sys.executable, "-m", "bench.open_loop"]
    done = subprocess.run(command, input=json.dumps(config), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _marked(texts: list[str], mark: str) -> list[str]:
    """Make the ids of one part of the run differ from those of the others."""
    return [text.replace(bodies.STAMP, mark + bodies.STAMP) for text in texts]


def _drive(running: Running, keys: list[str], token: str, capacity: float) -> dict:
    config = _generator_config(running, keys, "o")
    config["streams"] += [
        {"port": running.port, "path": "/v1/metrics/mau", "key": keys[1], "bodies": [""]},
        {"port": running.port, "path": "/v1/apps", "key": token, "bodies": [""]},
    ]
    quiet = [QUIET_SHARE * capacity / QUIET] * QUIET
    rates = {"half load": 0.5, "ten times": 10.0, "half again": 0.5}
    phases = [
        {
            "seconds": seconds,
            "rates": [(rates[name] - QUIET_SHARE) * capacity, *quiet, *[PROBES_PER_S] * len(PROBES)],
        }
        for name, seconds in PHASES_S.items()
    ]
    return _open_loop(config | {"phases": phases})


def _set_priorities_and_limits(running: Running) -> None:
    pin_threads(running.pids["ingest-1"], SERVED_CORE)
    pin_threads(running.pids["core"], DRIVING_CORE)
    for name, nice in NICE.items():
        _renice(running.pids[name], nice)
    _renice(os.getpid(), NICE["ingest-1"])
    status = Path(f"/proc/{running.pids['ingest-1']}/status").read_text()
    now_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData")))
    bytes_max = now_kb * 1024 + WORKER_ROOM_MB * 2**20
    resource.prlimit(running.pids["ingest-1"], resource.RLIMIT_DATA, (bytes_max, bytes_max))


def _renice(pid: int, nice: int) -> None:
    """Set the priority of a whole session: a scheduler that groups by session ignores that of a process."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    with suppress(PermissionError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


@contextmanager
def _sampled_memory(running: Running) -> Iterator[dict[str, list[float]]]:
    """Sample the resident megabytes of each process twice a second."""
    resident: dict[str, list[float]] = {name: [] for name in WATCHED}
    stopping = threading.Event()

    def watch() -> None:
        while not stopping.wait(0.5):
            for name, samples in resident.items():
                samples.append(running.resident_mb(name))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield resident
    finally:
        stopping.set()
        watcher.join()


def _memory(resident: dict[str, list[float]]) -> Iterator[Figure]:
    """Compare the last third of the overload with the first, to detect unbounded growth.

    The core's memory varies with the backlog, of which it loads up to 32 MB at a time: it has a fixed limit instead.
    """
    half, ten = (int(PHASES_S[name] * 2) for name in ("half load", "ten times"))
    for name, samples in resident.items():
        thirds = [samples[half + ten * third // 3 : half + ten * (third + 1) // 3] for third in range(3)]
        peaks = [max(third) for third in thirds]
        growth = sum(later - earlier for earlier, later in pairwise(peaks)) / peaks[0]
        text = " / ".join(f"{peak:.0f}" for peak in peaks) + f" MB in the three thirds, {max(samples):.0f} at most"
        if name == "core":
            floor = at_most(max(samples), CORE_MB_MAX, "MB")
        else:
            floor = at_most(1 + growth, 1.1, "of the first third")
        yield Figure(f"resident memory, {name}", text, 1 + growth, floor)


def _acknowledged(running: Running, accepted: int) -> Figure:
    wanted, ends = accepted * BATCH, time.monotonic() + STORED_WITHIN_S
    for thread in Path(f"/proc/{running.pids['core']}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {SERVED_CORE, DRIVING_CORE})
    while stored(running) < wanted and time.monotonic() < ends:
        time.sleep(0.5)
    time.sleep(2)
    missing = wanted - stored(running)
    return Figure("acknowledged minus stored", f"{missing} of {wanted:,}", floor=at_most(abs(missing), 0))


def _accepted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[4] in {200, 202}]


def _p50(rows: list[Row]) -> float:
    return _quantile(rows, 0.5)


def _p99(rows: list[Row]) -> float:
    return _quantile(rows, 0.99)


def _quantile(rows: list[Row], share: float) -> float:
    return sorted(row[3] for row in rows)[int(len(rows) * share)] if rows else 0.0


def _keys(running: Running) -> list[str]:
    """Return one key per organization, the noisy one's first."""
    return [_key(running, f"Organization {number}") for number in range(QUIET + 1)]


def _key(running: Running, name: str) -> str:
    org = running.operator("org", "create", name)["org_id"]
    running.operator("org", "limits", org, "--reads-per-minute", "100000")
    token = running.operator("token", "mint", "--org", org, "--scopes", "apps:write")["token"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    connection.request("POST", "/v1/apps", '{"name": "Bench"}', {"authorization": f"Bearer {token}"})
    return json.loads(connection.getresponse().read())["sk_key"]


def _token(running: Running) -> str:
    org = running.operator("org", "create", "Reader")["org_id"]
    return running.operator("token", "mint", "--org", org, "--scopes", "apps:read")["token"]
