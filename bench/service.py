"""Start the service for a measurement."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOM_BYTES = 4 * 2**30
MAUVE = str(Path(sys.executable).with_name("mauve"))


@dataclass(frozen=True)
class Running:
    data: Path
    port: int
    ingest_port: int
    started_in_s: float
    pids: dict[str, int]
    environment: dict[str, str]

    def resident_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.pids[name]}/status").read_text()
        kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return int(kilobytes) / 1024

    def operator(self, *arguments: str) -> dict[str, str]:
        command = [MAUVE, *arguments, "--data", str(self.data), "--json"]
        return json.loads(subprocess.run(command, capture_output=True, check=True, env=self.environment).stdout)


def in_memory() -> Path | None:
    """Return a folder whose files are in memory, if there is one with enough room."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and shutil.disk_usage(folder).free > _ROOM_BYTES else None


@contextmanager
def service(
    *arguments: str,
    settings: dict[str, str] | None = None,
    prepare: Callable[[Path], None] | None = None,
    parent: Path | None = None,
) -> Iterator[Running]:
    """Run the service on a new data directory and free ports; `prepare` may fill the directory first."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        data = Path(folder) / "data"
        if prepare is not None:
            prepare(data)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAUVE_")}
        environment |= {"MAUVE_HANG_SECONDS": "0"} | (settings or {})  # Benchmarks stop processes on purpose.
        command = [MAUVE, "serve", "--data", str(data), "--port", "0", "--ingest-port", "0", "--json", *arguments]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        announced = json.loads(process.stdout.readline())
        started_in_s = time.perf_counter() - began
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        names = ["core", *[f"ingest-{number}" for number in range(1, len(children))]]
        pids = {"supervisor": process.pid} | dict(zip(names, map(int, children), strict=True))
        ports = [int(announced[name].rpartition(":")[2]) for name in ("url", "ingest_url")]
        try:
            yield Running(data, *ports, started_in_s, pids, environment)
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
