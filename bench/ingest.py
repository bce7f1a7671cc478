"""The ingest plane: the throughput of a worker, compared with validation alone and with empty handlers."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import bodies
from bench.driver import app_key, cpu_s, generate, pin_threads, stored
from bench.empty_server import OF_WORKERS, ON_GRANIAN
from bench.report import Figure, at_least, at_most
from bench.service import Running, in_memory, service
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.ingest.rules import judge_events
from mauve.stores.published import PublishedKey

SECONDS = 6.0
ROUND_S, ROUNDS = 2.5, 5
SHORT_ROUND_S, SHORT_ROUNDS = 1.0, 15  # for CPU times, of which the best counts
BATCH = 500
CONNECTIONS = 32
_VALIDATED, _PASSES = 200, 10
WORKER_CORE, OTHER_CORE = 0, 1
# Validation and empty handlers write nothing: a slow or shared disk would be most of the difference to them.
MEMORY = in_memory()
IN_MEMORY = "" if MEMORY is None else ", log in memory"
KEY = PublishedKey("key_1", bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=False)


def measure() -> Iterator[Figure]:
    clean = [bodies.events(BATCH).encode() for _ in range(20)]
    (validation,) = _validation_alone(clean)
    yield Figure("validation alone, batches of 500", f"{validation * BATCH / 1000:.0f}k events/s")
    for name, make in bodies.MIXED.items():
        validation, mixed = _validation_alone(clean, [make(BATCH).encode() for _ in range(20)])
        ratio = validation / mixed
        figure = f"{1e3 / mixed:.2f} ms (clean: {1e3 / validation:.2f} ms)"
        yield Figure(f"a mixed batch: {name}", figure, ratio, at_most(ratio, 2.5, "times a clean one"))
    (payments,) = _validation_alone([bodies.payments(BATCH).encode() for _ in range(20)])
    yield Figure("validation alone, payments", f"{payments * BATCH / 1000:.0f}k payments/s")
    if MEMORY is not None:
        with service("--workers", "1") as running:
            pin_threads(running.pids["ingest-1"], WORKER_CORE)
            rate, ratio = _batch_rate(running, app_key(running), clean)
            yield Figure("one worker, batches of 500, on this disk", f"{rate * BATCH / 1000:.0f}k events/s", ratio)
    with service("--workers", "1", parent=MEMORY) as running:
        key = app_key(running)
        pin_threads(running.pids["ingest-1"], WORKER_CORE)
        rate, ratio = _batch_rate(running, key, clean)
        yield Figure(
            f"one worker, batches of 500{IN_MEMORY}",
            f"{rate * BATCH / 1000:.0f}k events/s",
            ratio,
            floor=at_least(ratio, 0.65, "of validation"),
            aim=at_least(ratio, 0.75),
        )
        yield from _singles(running, key)
        resident = running.resident_mb("ingest-1")
        yield Figure("resident memory under load, worker", f"{resident:.0f} MB", floor=at_most(resident, 150, "MB"))
    yield _two_workers()


def _batch_rate(running: Running, key: str, clean: list[bytes]) -> tuple[float, float]:
    """Return batches per second with the core process stopped, and their ratio to validation alone in the same round.

    Both are medians of several rounds: the machine's speed drifts.

    A round is short enough for the log to reuse its files, as it does when the loader keeps up. The first round only
    creates them, and does not count.
    """
    rates, ratios, accepted = [], [], 0
    for _ in range(1 + ROUNDS):
        with _core_stopped(running):
            done = generate(
                running.ingest_port, key, _batches(20), CONNECTIONS, ROUND_S, (OTHER_CORE,), first_stamp=accepted
            )
            (validation,) = _validation_alone(clean)
        _check_accepted(done)
        rates.append(done["requests"] / done["seconds"])
        ratios.append(rates[-1] / validation)
        accepted += int(done["accepted"])
        while stored(running) < accepted * BATCH:
            time.sleep(0.1)
        time.sleep(1)  # until the log has trimmed what is stored
    return statistics.median(rates[1:]), statistics.median(ratios[1:])


@contextmanager
def _core_stopped(running: Running) -> Iterator[None]:
    os.kill(running.pids["core"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pids["core"], signal.SIGCONT)


def _validation_alone(*kinds: list[bytes]) -> list[float]:
    """Return validated batches per second on one CPU core for each kind, with new ids, as the generator sends them.

    The other core is busy, as it is when the generator drives a worker: two cores may be threads of one. The kinds take
    turns, and the median pass of each counts: the machine's speed drifts.
    """
    os.sched_setaffinity(0, {WORKER_CORE})
    with _other_core_busy():
        passes = [[_validation_pass(batches) for batches in kinds] for _ in range(_PASSES)]
    os.sched_setaffinity(0, {WORKER_CORE, OTHER_CORE})
    return [statistics.median(rates) for rates in zip(*passes, strict=True)]


def _validation_pass(batches: list[bytes]) -> float:
    took = 0.0
    for number in range(_VALIDATED):
        body = batches[number % len(batches)].replace(bodies.STAMP.encode(), b"%08x" % number)
        began = time.perf_counter()
        judge_events(body, KEY, 1_794_700_000_000)
        took += time.perf_counter() - began
    return _VALIDATED / took


@contextmanager
def _other_core_busy() -> Iterator[None]:
    program = f"import os; os.sched_setaffinity(0, {{{OTHER_CORE}}}); print(flush=True)\nwhile True: pass"
    spinning = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    spinning.stdout.readline()
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()
        spinning.stdout.close()


def _check_accepted(done: dict[str, float]) -> None:
    if done["accepted"] != done["requests"]:
        raise AssertionError(f"{done['requests'] - done['accepted']} requests were refused")


def _batches(count: int) -> list[str]:
    return [bodies.events(BATCH) for _ in range(count)]


def _singles(running: Running, key: str) -> Iterator[Figure]:
    """Alternate between single events and empty handlers, and compare the cheapest round of each.

    The speed of a shared machine drifts within seconds, and other work can only make a round dearer.
    """
    with _empty_handler(ON_GRANIAN) as granian, _empty_handler(OF_WORKERS) as own, _core_stopped(running):
        servers = (running.pids["ingest-1"], running.ingest_port, key), (*granian, "none"), (*own, "none")
        rounds = [[_cpu_us_of_singles(*server) for server in servers] for _ in range(SHORT_ROUNDS)]
    (single, rate), (on_granian, _), (of_workers, _) = map(min, zip(*rounds, strict=True))
    ratio = on_granian / single
    yield Figure(
        f"one worker, single events{IN_MEMORY}",
        f"{rate:.0f} /s, {single:.0f} us of CPU each (an empty handler on granian: {on_granian:.0f})",
        ratio,
        floor=at_least(ratio, 0.70, "of granian's empty handler"),
        aim=at_most(single, 50, "us of CPU"),
    )
    name = "the same, against the workers' own empty handler"
    yield Figure(name, f"{of_workers:.0f} us of CPU", of_workers / single)


def _cpu_us_of_singles(pid: int, port: int, key: str) -> tuple[float, float]:
    """Return the CPU time of one request in microseconds, and the requests per second.

    Compare CPU time, not rates: an empty handler is faster than this generator.
    """
    before = cpu_s(pid)
    done = generate(port, key, [bodies.single() for _ in range(200)], CONNECTIONS, SHORT_ROUND_S, (OTHER_CORE,))
    _check_accepted(done)
    return (cpu_s(pid) - before) / done["requests"] * 1e6, done["requests"] / done["seconds"]


@contextmanager
def _empty_handler(number: int) -> Iterator[tuple[int, int]]:
    """Run a process with an empty handler; yield its pid and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"role": "ingest", "number": number, "data": ".", "host": "127.0.0.1", "port": 0, "ingest_port": port}
    command = [sys.executable, "-m", "bench.empty_server", json.dumps(config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    pin_threads(process.pid, WORKER_CORE)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _two_workers() -> Figure:
    """Drive two workers on both CPU cores, which the generator shares."""
    with service("--workers", "2") as running:
        key = app_key(running)
        with _core_stopped(running):
            done = generate(running.ingest_port, key, _batches(20), 16, SECONDS, (WORKER_CORE, OTHER_CORE))
        _check_accepted(done)
    rate = done["requests"] * BATCH / done["seconds"]
    return Figure("two workers, batches of 500, generator on the same cores", f"{rate / 1000:.0f}k events/s")
