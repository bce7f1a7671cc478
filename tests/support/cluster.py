"""Mauve on several machines, with a NATS server on each node.

A node can be lost, cut off, paused or filled, or its clock moved.
"""

import base64
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2 as httpx
import psycopg

from support.clickhouse import ClickHouse
from support.cluster_costs import spent_by, spent_s
from support.nats import PASSWORD, USER, server_config
from support.network import Machine, Network
from support.postgres import Postgres
from support.service import MAUVE, PATIENCE_S, clean_environment, eventually

ROLES = {"n1": ("all",), "n2": ("ingest", "api"), "n3": ("ingest", "loader")}
PORT, INGEST_PORT = 8080, 8081
NATS_PORT, MONITOR_PORT, ROUTE_PORT = 4222, 8222, 6222
CLOCK_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
CLOCK_CACHE_S = 1  # how long a process goes without reading its clock again
_NATS = Path(sys.executable).with_name("nats-server")
_DISK = "size=64m"
_ASK_S = 10.0
_POLL_S = 0.1  # Asking more often would be a large part of the load.


class Node:
    """One machine that runs a NATS server and Mauve in one or two roles. Its disk is its own, and small."""

    def __init__(self, machine: Machine, folder: Path, settings: dict[str, str], nats: str) -> None:
        self.machine, self.name = machine, machine.name
        self.roles = ROLES[machine.name]
        self.disk = folder / machine.name
        self.settings = settings
        self._logs = folder
        self._nats_config = folder / f"{machine.name}.conf"
        self._nats_config.write_text(nats)
        self._clock = folder / f"{machine.name}.clock"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_clock_movable = False
        self.lost_cpu_s = 0.0  # of children that were killed with their parents, which did not wait for them
        self.set_clock(0)

    @property
    def urls(self) -> list[str]:
        """Return the addresses at which it can be asked whether it is ready."""
        ports = {"all": (PORT, INGEST_PORT), "ingest": (INGEST_PORT,), "api": (PORT,), "loader": (PORT,)}
        return [f"http://{self.machine.address}:{port}" for role in self.roles for port in ports[role]]

    @property
    def ingest_url(self) -> str:
        return f"http://{self.machine.address}:{INGEST_PORT}"

    @property
    def api_url(self) -> str:
        return f"http://{self.machine.address}:{PORT}"

    @property
    def has_api(self) -> bool:
        return bool({"all", "api"} & {*self.roles})

    @property
    def has_loader(self) -> bool:
        return bool({"all", "loader"} & {*self.roles})

    def mount(self) -> None:
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", _DISK, "mauve-test", self.disk], check=True)

    def keep_running(self) -> None:
        """Start what does not run, as an init system does: a process whose servers are away at its start ends."""
        if not self._is_running("nats"):
            self._start("nats", [str(_NATS), "-c", str(self._nats_config)], {})
        for role in self.roles:
            if not self._is_running(role):
                data = ("--data", str(self.disk / role))
                ports = ("--port", str(PORT), "--ingest-port", str(INGEST_PORT))
                serve = [str(MAUVE), "serve", *data, *ports, "--role", role, "--json"]
                self._start(role, serve, clean_environment(None, **self.settings) | self._clock_library())

    def kill(self) -> None:
        """End every process at once, as a loss of power does."""
        own = {process.pid for process in self._processes.values()}
        self.lost_cpu_s += sum(spent_by(pid) for pid in self.machine.pids() if pid not in own)
        self.machine.kill()
        for process in self._processes.values():
            process.wait(PATIENCE_S)
        self._processes.clear()

    def restart_nats(self) -> None:
        """Start its NATS server again, as an operator does after its disk was full: it has given up its storage."""
        self._stop("nats", signal.SIGKILL)
        self.keep_running()

    def empty(self) -> None:
        for path in self.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def pause(self) -> None:
        self.machine.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.machine.signal(signal.SIGCONT)

    def restart_mauve(self, *, is_clock_movable: bool) -> None:
        """Start Mauve with a library that can move its clock, or without: with it, all costs twice as much."""
        self.is_clock_movable = is_clock_movable
        for role in self.roles:
            self._stop(role, signal.SIGTERM)
        self.keep_running()

    def set_clock(self, offset_s: int) -> None:
        """Let Mauve's processes believe in another time of day, if their clock is movable; durations stay true."""
        self._clock.write_text(f"{offset_s:+d}\n")

    def fill_disk(self) -> None:
        try:
            with (self.disk / "filling").open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(64 * 1024))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def is_disk_full(self) -> bool:
        """Return whether the disk refuses another page."""
        probe = self.disk / "probe"
        try:
            probe.write_bytes(bytes(4096))
        except OSError as error:
            return error.errno == errno.ENOSPC
        finally:
            probe.unlink(missing_ok=True)
        return False

    def free_disk(self) -> None:
        (self.disk / "filling").unlink(missing_ok=True)

    def readiness(self, url: str) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = httpx.get(f"{url}/readyz", timeout=_ASK_S).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return reply

    def has_storage(self) -> bool:
        """Return whether its NATS server still stores messages."""
        try:
            reply = httpx.get(f"http://{self.machine.address}:{MONITOR_PORT}/jsz", timeout=_ASK_S).json()
        except (httpx.HTTPError, ValueError):
            return False
        return not reply.get("disabled", False)

    def holder_names(self) -> set[str]:
        """Return the names under which its loaders hold the lease."""
        paths = (self.disk / role / "machine" for role in self.roles)
        return {path.read_text().strip() for path in paths if path.exists()}

    def logs(self) -> str:
        """Return the end of every log, for a test that failed."""
        texts = {path.name: path.read_text(errors="replace")[-3000:] for path in self._logs.glob(f"{self.name}-*.log")}
        return "\n".join(f"--- {name}\n{text}" for name, text in sorted(texts.items()))

    def _is_running(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def _stop(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE_S)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self._logs / f"{self.name}-{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self.machine.enter, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment or None,
                start_new_session=True,
            )

    def _clock_library(self) -> dict[str, str]:
        if not self.is_clock_movable:
            return {}
        return {
            "LD_PRELOAD": str(CLOCK_LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": str(CLOCK_CACHE_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


class Cluster:
    """Three nodes, a machine for PostgreSQL and one for ClickHouse. Use as a context manager."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self.nodes.values():
            node.kill()
        self._opened.close()

    @property
    def apis(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.has_api]

    def keep_running(self) -> None:
        for node in self.nodes.values():
            node.keep_running()

    def wait_until_ready(self) -> None:
        """Return when every node has said that it is ready, however it came to be down."""
        waiting = [(node, url) for node in self.nodes.values() for url in node.urls]

        def all_ready() -> bool:
            self.keep_running()
            waiting[:] = [(node, url) for node, url in waiting if not node.readiness(url).get("ok")]
            time.sleep(_POLL_S if waiting else 0)
            return not waiting

        try:
            eventually(all_ready)
        except AssertionError:
            asked = "\n".join(f"{node.name} {url} {node.readiness(url)}" for node, url in waiting)
            logs = "\n".join(node.logs() for node in self.nodes.values())
            raise AssertionError(f"not every node is ready:\n{asked}\n{logs}") from None

    def loader(self) -> Node | None:
        """Return the node that holds the lease."""
        ((holder,),) = self.rows("SELECT holder FROM load_lease")
        return next((node for node in self.nodes.values() if holder in node.holder_names()), None)

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read from the ledger."""
        with psycopg.connect(self.settings["MAUVE_DATABASE_URL"], options="-c search_path=ledger") as connection:
            return connection.execute(sql, parameters).fetchall()

    def events_of(self, project: str) -> list[list[Any]]:
        """Return id, user and whether it counts, of every stored event of a project."""
        sql = f"SELECT id, user, counted FROM events WHERE project = '{project}' FORMAT JSONCompactEachRow"
        return [json.loads(line) for line in self._clickhouse.query(sql, self._warehouse).splitlines()]

    def is_stored(self, project: str, id_: str) -> bool:
        sql = f"SELECT count() FROM events WHERE project = '{project}' AND id = '{id_}'"
        return int(self._clickhouse.query(sql, self._warehouse)) > 0

    @property
    def engines(self) -> list[tuple[str, int]]:
        """Return host and port of PostgreSQL and ClickHouse."""
        urls = [urlsplit(self.settings[name]) for name in ("MAUVE_DATABASE_URL", "MAUVE_WAREHOUSE_URL")]
        return [(url.hostname or "", url.port or 0) for url in urls]

    def cpu_s(self) -> float:
        """Return the CPU time that the tests and every machine have used."""
        pids = [pid for machine in self.network.machines.values() for pid in machine.pids()]
        return spent_s(pids) + sum(node.lost_cpu_s for node in self.nodes.values())

    def until_loaded(self) -> None:
        """Wait until the loader has caught up with everything that is durable by now."""
        asked_at = time.monotonic()

        def has_caught_up() -> bool:
            loader = self.loader()
            if loader is None:
                return False
            before_the_reply = time.monotonic()
            lag_ms = loader.readiness(loader.api_url).get("load_lag_ms")
            is_later = lag_ms is not None and before_the_reply - lag_ms / 1000 > asked_at
            time.sleep(0 if is_later else _POLL_S)
            return is_later and self.loader() is loader

        eventually(has_caught_up)

    def _open(self) -> None:
        sweep()
        self.network = self._opened.enter_context(Network("n1", "n2", "n3", "db", "wh"))
        folder = Path(tempfile.mkdtemp(prefix=f"mauve-cluster-{os.getpid()}-", dir=_parent()))
        self._opened.callback(_remove, folder)
        machines = self.network.machines
        postgres = self._opened.enter_context(Postgres(machine=machines["db"]))
        self._clickhouse = self._opened.enter_context(ClickHouse(machines["wh"]))
        self._warehouse = "cluster"
        addresses = [machines[name].address for name in ROLES]
        credential = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
        self.settings = {
            "MAUVE_DATABASE_URL": postgres.create("cluster"),
            "MAUVE_WAREHOUSE_URL": self._clickhouse.create(self._warehouse),
            "MAUVE_STREAM_URL": ",".join(f"nats://{credential}@{address}:{NATS_PORT}" for address in addresses),
            "MAUVE_STREAM_MONITOR_URL": ",".join(f"http://{address}:{MONITOR_PORT}" for address in addresses),
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "MAUVE_BACKLOG_MB": "256",
            "MAUVE_STREAM_KEEP_HOURS": "0",  # The disks are small.
            "MAUVE_CATALOG_TIMEOUT_SECONDS": "4",
            "MAUVE_READ_SECONDS": "4",
            "MAUVE_READ_CACHE_SECONDS": "0",
            "MAUVE_WORKERS": "1",
            "MAUVE_PROXIES": "1",  # A client that says so has an address of its own.
        }
        for name in ROLES:
            own = self.settings | {"MAUVE_HOST": machines[name].address}
            self.nodes[name] = Node(machines[name], folder, own, _nats_config(machines[name], folder, addresses))
            self.nodes[name].mount()
            self.nodes[name].keep_running()
        self.wait_until_ready()


def _nats_config(machine: Machine, folder: Path, addresses: list[str]) -> str:
    config = server_config(
        machine.name,
        f"{machine.address}:{NATS_PORT}",
        f"{machine.address}:{MONITOR_PORT}",
        store=folder / machine.name / "nats",
        limits="sync_interval: always, max_file_store: 10TB",
        routes=[f"{address}:{ROUTE_PORT}" for address in addresses],
        own_route=f"{machine.address}:{ROUTE_PORT}",
    )
    # As in deploy/scaled: by default, a server that is cut off is asked for stored events for up to a minute.
    return config.replace("cluster { ", 'cluster { ping_interval: "1s", ping_max: 2, ')


def sweep() -> None:
    """Remove the folders and disks of runs whose process has died."""
    for folder in _parent().glob("mauve-cluster-*"):
        if not Path(f"/proc/{folder.name.split('-')[2]}").exists():
            _remove(folder)
    for path in Path("/dev/shm").glob("*faketime_s*_*"):  # The library leaves them if its process is killed.
        if not Path(f"/proc/{path.name.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)


def _parent() -> Path:
    return Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())


def _remove(folder: Path) -> None:
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=True)
    shutil.rmtree(folder)
