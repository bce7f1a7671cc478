"""A ClickHouse server for tests: the embedded engine behind ClickHouse's HTTP interface, in a process of its own.

It is the real engine, of the same version and SQL: sessions, temporary tables, settings per request, bound parameters,
tokens, time limits and error codes behave as on a server; it can be killed, frozen and started again. It is not a
cluster, and not the real HTTP handler: replicas, quorums, TLS, quotas, user profiles and compression cannot be tested
with it. `deploy/verify-clickhouse` checks those on a real one.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

import httpx2 as httpx

from support.network import Machine
from support.ports import free_ports
from support.service import PATIENCE_S, freeze

USER, PASSWORD = "mauve", "a password: with/odd@characters"
_PROGRAM = Path(__file__).with_name("clickhouse_server.py")


class ClickHouse:
    """One server on a free port of the loopback, or of a machine, with its own data. Use as a context manager."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._host = "127.0.0.1" if machine is None else machine.address
        self._enter = () if machine is None else machine.enter
        self._folder = Path(tempfile.mkdtemp(prefix="mauve-clickhouse-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        environment = {**os.environ, "CLICKHOUSE_USER": USER, "CLICKHOUSE_PASSWORD": PASSWORD}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, sys.executable, "-P", str(_PROGRAM), self._host, str(self.port), str(self._folder)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        gives_up_at = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > gives_up_at:
                raise AssertionError((self._folder / "log").read_text())
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, user: str = USER, password: str = PASSWORD) -> str:
        return f"clickhouse://{user}:{quote(password, safe='')}@{self._host}:{self.port}/{database}"

    def create(self, database: str = "") -> str:
        """Create an empty database and return its URL."""
        database = database or f"own_{secrets.token_hex(8)}"
        self.query(f"CREATE DATABASE {database}")
        return self.url(database)

    def drop(self, url: str) -> None:
        self.query(f"DROP DATABASE {url.rpartition('/')[2]} SYNC")

    def query(self, sql: str, database: str = "default") -> str:
        answer = httpx.post(
            f"http://{self._host}:{self.port}/",
            params={"database": database},
            content=sql.encode(),
            auth=(USER, PASSWORD),
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200, answer.text
        return answer.text

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://{self._host}:{self.port}/ping", timeout=2).status_code == 200
        except httpx.TransportError:
            return False
