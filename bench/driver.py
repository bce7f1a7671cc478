"""What requests cost a process: driven from the other core, counted by the kernel."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVED_CORE, DRIVING_CORE = 0, 1


def cpu_us_per_get(pid: int, port: int, path: str, key: str, seconds: float, connections: int) -> tuple[float, float]:
    """Return what one GET costs the process, in microseconds of a core, and how many there were a second."""
    orders = {
        "port": port,
        "path": path,
        "key": key,
        "bodies": [""],
        "connections": connections,
        "seconds": seconds,
        "rate": 1e9,
        "cores": [DRIVING_CORE],
    }
    before = _cpu_s(pid)
    command = [sys.executable, "-m", "bench.generator"]
    said = subprocess.run(command, input=json.dumps(orders), capture_output=True, text=True, check=True).stdout
    done = json.loads(said)
    if done["accepted"] != done["requests"]:
        raise AssertionError(f"{done['requests'] - done['accepted']} requests were refused")
    return (_cpu_s(pid) - before) / done["requests"] * 1e6, done["requests"] / done["seconds"]


@contextmanager
def empty_core() -> Iterator[tuple[int, int]]:
    """Run a core that only answers; return its pid and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    orders = {"role": "core", "number": 0, "data": ".", "host": "127.0.0.1", "port": port, "ingest_port": 0}
    command = [sys.executable, "-m", "bench.empty_server", json.dumps(orders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        pin(process.pid)
        try:
            yield process.pid, port
        finally:
            process.terminate()


def pin(pid: int) -> None:
    """Keep every thread of a process on the served core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {SERVED_CORE})


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
