"""Real NATS servers for tests, one or a cluster of three, from a package: no system package, no Docker."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from support.ports import free_ports
from support.service import eventually, freeze

_PROGRAM = Path(sys.executable).with_name("nats-server")
USER, PASSWORD = "mauve", "a password: with/odd@characters"
_MIB = 2**20


class Nats:
    """Servers on free ports of the loopback, each with its own data. Use as a context manager."""

    def __init__(
        self,
        servers: int = 3,
        *,
        sync: str = "always",
        max_payload: int = 8 * _MIB,
        file_store: int = 10_000_000 * _MIB,
        jetstream: bool = True,
    ) -> None:
        self._sync, self._max_payload, self._file_store, self._jetstream = sync, max_payload, file_store, jetstream
        self._folder = Path(tempfile.mkdtemp(prefix="mauve-nats-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self.count = servers
        ports = free_ports(3 * servers)
        self.ports, self.monitor_ports, self._route_ports = (ports[place::3] for place in range(3))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for index in range(self.count):
                (self._folder / f"{index}.conf").write_text(self._config(index))
                self._run(index)
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for index in list(self._processes):
            self.kill(index)
        shutil.rmtree(self._folder)

    @property
    def url(self) -> str:
        return self.url_as(USER, PASSWORD)

    @property
    def monitor_url(self) -> str:
        return ",".join(f"http://127.0.0.1:{port}" for port in self.monitor_ports)

    def settings(self) -> dict[str, str]:
        """Return the settings of a service on these servers."""
        return {"MAUVE_STREAM_URL": self.url, "MAUVE_STREAM_MONITOR_URL": self.monitor_url}

    def url_as(self, user: str, password: str) -> str:
        credential = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return ",".join(f"nats://{credential}@127.0.0.1:{port}" for port in self.ports)

    def start(self, index: int) -> None:
        """Start a server again on its data, and return once the cluster is ready."""
        self._run(index)
        if self.running * 2 > self.count:
            self.wait_until_ready()

    def kill(self, index: int) -> None:
        """End a server at once, as a crash does. A frozen one is ended, too."""
        process = self._processes.pop(index)
        process.kill()
        process.wait()

    def freeze(self, index: int) -> None:
        freeze(self._processes[index].pid)

    def thaw(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGCONT)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    @property
    def running(self) -> int:
        return len(self._processes)

    def index_of(self, server_name: str) -> int:
        """Return the index of a server by the name that NATS reports as a leader."""
        return int(server_name.removeprefix("n"))

    def monitor(self, index: int, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_ports[index]}{path}", timeout=5) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def wait_until_ready(self) -> None:
        """Return when every running server is up and, in a cluster, follows a leader that sees all of them."""
        eventually(lambda: all(self._is_ready(index) for index in self._processes))

    def _is_ready(self, index: int) -> bool:
        if self._processes[index].poll() is not None:
            raise AssertionError((self._folder / f"{index}.log").read_text())
        with suppress(OSError):
            if not self._jetstream:
                return bool(self.monitor(index, "/varz"))
            if self.count == 1:
                return not self.monitor(index, "/jsz").get("disabled")
            meta = self.monitor(index, "/jsz").get("meta_cluster", {})
            if meta.get("leader") != f"n{index}":
                return bool(meta.get("leader"))
            online = [each for each in meta.get("replicas", []) if not each.get("offline") and each.get("current")]
            return len(online) >= self.running - 1
        return False

    def _run(self, index: int) -> None:
        with (self._folder / f"{index}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                [_PROGRAM, "-c", self._folder / f"{index}.conf"], stdout=log, stderr=log, start_new_session=True
            )

    def _config(self, index: int) -> str:
        return server_config(
            f"n{index}",
            f"127.0.0.1:{self.ports[index]}",
            f"127.0.0.1:{self.monitor_ports[index]}",
            max_payload=self._max_payload,
            store=self._folder / f"store-{index}" if self._jetstream else None,
            limits=f"sync_interval: {self._sync}, max_file_store: {self._file_store}",
            routes=[f"127.0.0.1:{port}" for port in self._route_ports] if self.count > 1 else [],
            own_route=f"127.0.0.1:{self._route_ports[index]}",
        )


def server_config(
    name: str,
    listen: str,
    monitor: str,
    *,
    store: Path | None,
    routes: Sequence[str],
    own_route: str,
    limits: str,
    max_payload: int = 8 * _MIB,
) -> str:
    """Return the configuration of a server, alone or in a cluster."""
    lines = [
        f"server_name: {name}",
        f"listen: {listen}",
        f"http: {monitor}",
        f"max_payload: {max_payload}",
        "max_pending: 67108864",
        f"authorization {{ user: {json.dumps(USER)}, password: {json.dumps(PASSWORD)} }}",
    ]
    if store is not None:
        memory = f"max_memory_store: {256 * _MIB}"
        lines.append(f"jetstream {{ store_dir: {json.dumps(str(store))}, {memory}, {limits} }}")
    if routes:
        urls = ", ".join(f'"nats://{route}"' for route in routes)
        lines.append(f"cluster {{ name: mauve, listen: {own_route}, routes: [{urls}] }}")
    return "\n".join(lines)
