"""Drive a process from the other CPU core, and measure its CPU time per request."""

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.service import Running

SERVED_CORE, DRIVING_CORE = 0, 1


def cpu_us_per_get(pid: int, port: int, path: str, key: str, seconds: float, connections: int) -> tuple[float, float]:
    """Return the CPU time of one GET in microseconds, and the requests per second."""
    config = {
        "port": port,
        "path": path,
        "key": key,
        "bodies": [""],
        "connections": connections,
        "seconds": seconds,
        "rate": 1e9,
        "cores": [DRIVING_CORE],
    }
    before = cpu_s(pid)
    command = [sys.executable, "-m", "bench.generator"]
    output = subprocess.run(command, input=json.dumps(config), capture_output=True, text=True, check=True).stdout
    done = json.loads(output)
    if done["accepted"] != done["requests"]:
        raise AssertionError(f"{done['requests'] - done['accepted']} requests were refused")
    return (cpu_s(pid) - before) / done["requests"] * 1e6, done["requests"] / done["seconds"]


@contextmanager
def empty_core() -> Iterator[tuple[int, int]]:
    """Run a core with an empty handler; yield its pid and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"role": "core", "number": 0, "data": ".", "host": "127.0.0.1", "port": port, "ingest_port": 0}
    command = [sys.executable, "-m", "bench.empty_server", json.dumps(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        pin(process.pid)
        try:
            yield process.pid, port
        finally:
            process.terminate()


def pin(pid: int) -> None:
    """Pin every thread of a process to the served CPU core."""
    pin_threads(pid, SERVED_CORE)


def pin_threads(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def generate(
    port: int,
    key: str,
    texts: list[str],
    connections: int,
    seconds: float,
    cores: tuple[int, ...],
    rate: float = 1e9,
    first_stamp: int = 0,
) -> dict[str, float]:
    """Send batches of events for some seconds from a separate process; return its counts."""
    config = {
        "port": port,
        "path": "/v1/events",
        "key": key,
        "bodies": texts,
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
        "cores": list(cores),
        "first_stamp": first_stamp,
    }
    command = [sys.executable, "-m", "bench.generator"]
    done = subprocess.run(command, input=json.dumps(config), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def stored(running: Running) -> int:
    """Return the number of events loaded and counted."""
    with closing(sqlite3.connect(f"file:{running.data}/ledger.db?mode=ro", uri=True)) as ledger:
        return ledger.execute("SELECT coalesce(sum(events), 0) FROM usage").fetchone()[0]


def app_key(running: Running) -> str:
    """Create an organization with an app, and return the app's key."""
    org = running.operator("org", "create", "Bench")["org_id"]
    running.operator("org", "limits", org, "--reads-per-minute", "1000000")  # It polls: no read is to be refused.
    token = running.operator("token", "mint", "--org", org, "--scopes", "apps:write")["token"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    connection.request("POST", "/v1/apps", '{"name": "Bench"}', {"authorization": f"Bearer {token}"})
    return json.loads(connection.getresponse().read())["sk_key"]
