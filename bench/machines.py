"""Machines of every role on the servers of the tests, for measurements."""

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.service import MAUVE

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the servers of the tests

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Machine:
    """A running `mauve serve` with a role."""

    role: str
    data: Path
    process: subprocess.Popen
    port: int

    @property
    def pids(self) -> list[int]:
        return tree_of(self.process.pid)

    @property
    def name(self) -> str:
        return (self.data / "machine").read_text().strip()

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)


@dataclass
class Cluster:
    """Servers of every kind, and the machines that use them."""

    folder: Path
    settings: dict[str, str]
    postgres: object
    clickhouse: object
    nats: object
    machines: list[Machine] = field(default_factory=list)

    def start(self, role: str) -> Machine:
        data = self.folder / f"{role}-{len(self.machines)}"
        options = ["--role", role, "--port", "0", "--ingest-port", "0", "--workers", "1", "--json"]
        with (self.folder / f"{data.name}.log").open("ab") as log:
            command = [MAUVE, "serve", "--data", str(data), *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self.environment)
        line = process.stdout.readline()
        if not line:
            raise AssertionError((self.folder / f"{data.name}.log").read_text())
        announced = json.loads(line)
        url = announced["ingest_url"] if role == "ingest" else announced["url"]
        machine = Machine(role, data, process, int(url.rpartition(":")[2]))
        self.machines.append(machine)
        return machine

    def kill(self, machine: Machine) -> None:
        machine.signal(signal.SIGKILL)
        machine.process.wait()
        machine.process.stdout.close()
        self.machines.remove(machine)

    def of(self, role: str) -> list[Machine]:
        return [machine for machine in self.machines if machine.role == role]

    def command(self, *arguments: str) -> dict[str, str]:
        command = [MAUVE, *arguments, "--data", str(self.folder / "desk"), "--json"]
        return json.loads(subprocess.run(command, capture_output=True, check=True, env=self.environment).stdout)

    def loader(self) -> Machine:
        """Return the machine that loads."""
        import psycopg  # noqa: PLC0415 - only with servers

        with psycopg.connect(self.settings["MAUVE_DATABASE_URL"]) as connection:
            ((holder,),) = connection.execute("SELECT holder FROM ledger.load_lease").fetchall()
        return next(machine for machine in self.of("loader") if machine.name == holder)

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time so far, by part."""
        roles = {role: [pid for each in self.of(role) for pid in each.pids] for role in ("ingest", "loader", "api")}
        servers = {
            "NATS": self.nats.pids,
            "PostgreSQL": tree_of(self.postgres.pid),
            "ClickHouse": tree_of(self.clickhouse.pid),
        }
        return {part: sum(map(_cpu_s, pids)) for part, pids in (roles | servers).items()}

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAUVE_")}
        return inherited | {"MAUVE_HANG_SECONDS": "0"} | self.settings

    def stop(self) -> None:
        for machine in self.machines:
            machine.process.terminate()
        for machine in self.machines:
            machine.process.wait()
            machine.process.stdout.close()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start the servers: three of NATS, one of each other kind."""
    from support.clickhouse import ClickHouse  # noqa: PLC0415 - needs the path above
    from support.nats import Nats  # noqa: PLC0415
    from support.postgres import Postgres  # noqa: PLC0415

    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        postgres, clickhouse = opened.enter_context(Postgres()), opened.enter_context(ClickHouse())
        nats = opened.enter_context(Nats(servers=3))
        settings = {
            "MAUVE_DATABASE_URL": postgres.create("bench"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create("bench"),
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "MAUVE_READ_CACHE_SECONDS": "0",
            **nats.settings(),
        }
        made = Cluster(folder, settings, postgres, clickhouse, nats)
        opened.callback(made.stop)
        yield made


def tree_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in tree_of(int(child)))]


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S
