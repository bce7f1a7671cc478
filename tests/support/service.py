"""Start a service, run commands, and wait for conditions."""

import json
import math
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import httpx2 as httpx

from support import command_forks

T = TypeVar("T")
MAUVE = Path(sys.executable).with_name("mauve")
EVERY_SCOPE = "apps:read,apps:write,keys:read,keys:write,webhooks:write,metrics:read"
PATIENCE_S = 240.0  # generous: on a quiet machine nothing takes nearly this long
_OPEN = {"01", "08"}  # ESTABLISHED and CLOSE_WAIT in /proc/net/tcp
TEST_SETTINGS = {
    "MAUVE_SEGMENT_MB": "3",
    "MAUVE_INGEST_FLUSH_SECONDS": "0.4",
    "MAUVE_CATALOG_TIMEOUT_SECONDS": "60",
    "MAUVE_DRAIN_SECONDS": "0",
}


SERVERS: dict[Path, dict[str, str]] = {}
"""The settings of installations that use servers, by data directory. Commands on the directory get them, too."""


def clean_environment(data: Path | None = None, **extra: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAUVE_") and name != "PORT"}
    return inherited | TEST_SETTINGS | (SERVERS.get(data, {}) if data else {}) | extra


def mauve(data: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in its own process, and wait for it."""
    command = [str(MAUVE), *arguments, "--data", str(data)]
    return command_forks.run(command, stdin=stdin, env=clean_environment(data, **environment), timeout_s=PATIENCE_S)


def mauve_json(data: Path, *arguments: str, stdin: str = "") -> Any:
    """Run a command that must succeed; return its JSON result."""
    done = mauve(data, *arguments, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, "one JSON value and nothing else"
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Service:
    """A running `mauve serve`."""

    process: subprocess.Popen[bytes]
    data: Path
    url: str
    ingest_url: str
    setup_link: str | None

    def child_pids(self) -> dict[str, int]:
        return child_pids(self.process.pid)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    def log(self) -> str:
        return (self.data.parent / f"{self.data.name}.log").read_text()


def child_pids(supervisor: int) -> dict[str, int]:
    """Return the pid of each child of a service by its name."""
    listing = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
    names = {}
    for pid in map(int, listing.split()):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            config = json.loads(arguments[-2])  # The last is empty.
        except (OSError, IndexError, ValueError):
            continue  # It has just ended, or is just starting,
        if not isinstance(config, dict):
            continue  # and may still have the arguments of the supervisor, whose last is a number.
        name = config["role"] if config["role"] == "core" else f"ingest-{config['number']}"
        names[name] = pid
    return names


def start(data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Service:
    """Start the service on free ports, and return once it is ready."""
    with (data.parent / f"{data.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(MAUVE), "serve", "--data", str(data), "--port", "0", "--ingest-port", "0", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            env=clean_environment(data, **(environment or {})),
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.stdout.close()
        process.wait(timeout=PATIENCE_S)
        text = (data.parent / f"{data.name}.log").read_text()
        raise AssertionError(f"the service did not start: {text}")
    announced = json.loads(line)
    return Service(process, data, announced["url"], announced["ingest_url"], announced["setup_link"])


@contextmanager
def running(data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    service = start(data, *arguments, environment=environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()
        assert service.process.stdout is not None
        service.process.stdout.close()


def two_free_ports() -> int:
    """Return the first of two adjacent free ports, below the range from which the system assigns ports."""
    for port in random.SystemRandom().sample(range(10_000, 30_000), 100):
        with socket.socket() as one, socket.socket() as other, suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports")


def is_held(server_port: int, client_port: int) -> bool:
    """Return whether the server still has its end of a connection open."""
    ends = f":{server_port:04X}", f":{client_port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any((local[-5:], remote[-5:], state in _OPEN) == (*ends, True) for _, local, remote, state, *_ in rows)


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def freeze(*pids: int) -> None:
    """Stop processes, and wait until no thread of theirs runs: until then, a busy machine lets them go on."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(map(is_stopped, pids)))


def is_stopped(pid: int) -> bool:
    """Return whether no thread of a process runs."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # It has just ended.
            states.add(thread.read_text().rpartition(")")[2].split()[0])
    return states <= set("TZX")


def until_known(service: Service, key: str) -> None:
    """Wait until the service's only worker knows a new key: on servers, that takes up to a poll."""

    def status() -> int:  # A malformed body is refused after the key is checked.
        url = f"{service.ingest_url}/v1/events"
        return httpx.post(url, json=[], headers=bearer(key), timeout=PATIENCE_S).status_code

    eventually(lambda: status() != HTTPStatus.UNAUTHORIZED)


def commands_connected(data: Path) -> int:
    """Return how many commands are connected to the core."""
    name = str(data / "core.sock")
    held = [line for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(name)]
    return len(held) - 1  # One listens.


def eventually(check: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """Poll the check, and return its first true value."""
    ends_at = time.monotonic() + timeout_s
    while time.monotonic() < ends_at:
        if value := check():
            return value
        time.sleep(0.02)
    raise AssertionError("the condition was not met in time")


def until_loaded(service: Service) -> None:
    """Wait until the loader has caught up with everything that is durable by now."""
    asked_at = time.monotonic()

    def has_caught_up() -> bool:
        before_the_reply = time.monotonic()
        lag_ms: float = httpx.get(f"{service.url}/readyz").json().get("load_lag_ms", math.inf)
        return before_the_reply - lag_ms / 1000 > asked_at

    eventually(has_caught_up)


def fixed_ports() -> tuple[str, ...]:
    """Return options for ports that the system assigns to no other program, for a service that is restarted."""
    port = two_free_ports()
    return ("--port", str(port), "--ingest-port", str(port + 1))


def token_for(data: Path, scopes: str = EVERY_SCOPE, org: str | None = None) -> str:
    org_id = org or mauve_json(data, "org", "create", "Acme")["org_id"]
    token: str = mauve_json(data, "token", "mint", "--org", org_id, "--scopes", scopes)["token"]
    return token


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


def post_events(base_url: str, key: str) -> int:
    """Post one event, and return the status: 401 if the process does not know the key."""
    try:
        return httpx.post(f"{base_url}/v1/events", headers=bearer(key), json=[{"name": "seen"}]).status_code
    except httpx.TransportError:
        return 0


STORED = """
import sys, json
from pathlib import Path
from mauve.stores.warehouse.chdb import ChdbConnection
connection = ChdbConnection(Path(sys.argv[1]))
text = connection._query("SELECT project, name, user, id, counted, seq FROM mauve.events", "JSONCompactEachRow")
sys.stdout.write(text.decode())
connection.close()
"""


def stored_events(data: Path) -> list[tuple[Any, ...]]:
    """Return (project, name, user, id, counted, seq) of every event in the warehouse of a stopped service.

    In a separate process: the embedded engine opens only one path per process.
    """
    url = SERVERS.get(data, {}).get("MAUVE_WAREHOUSE_URL")
    if url is not None:
        return _stored_on_server(url)
    done = subprocess.run(
        [sys.executable, "-c", STORED, str(data / "warehouse")], capture_output=True, text=True, check=True
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def _stored_on_server(url: str) -> list[tuple[Any, ...]]:
    from mauve.core.secret import Secret  # noqa: PLC0415 - only with servers
    from mauve.stores.warehouse.server.server import address_from, open_for_reading  # noqa: PLC0415

    sql = "SELECT project, name, user, id, counted, seq FROM events"
    plain_numbers = "SETTINGS output_format_json_quote_64bit_integers = 0"
    with closing(open_for_reading(address_from(Secret(url)), PATIENCE_S)) as connection:
        return [tuple(row) for row in connection.read(f"{sql} {plain_numbers}", {})]


def ledger_rows(data: Path, sql: str) -> list[tuple[Any, ...]]:
    url = SERVERS.get(data, {}).get("MAUVE_DATABASE_URL")
    if url is not None:
        import psycopg  # noqa: PLC0415 - only with servers

        with psycopg.connect(url, options="-c search_path=ledger") as server:
            return server.execute(sql).fetchall()
    with closing(sqlite3.connect(f"file:{data}/ledger.db?mode=ro", uri=True)) as file:
        return file.execute(sql).fetchall()


def cut_batch(life: int, number: int) -> dict[str, Any]:
    """Return a batch for a run of the service, numbered; every third has a payment as well as events."""
    name = f"{life}-{number}"
    events = [
        {"name": f"event {place}", "user": f"u{(number * 7 + place) % 400}", "id": f"{name}-{place}"}
        for place in range(1 + number % 5)
    ]
    is_paid = number % 3 == 0
    return {"events": events, "payment": f"p-{name}" if is_paid else None, "amount": number + 1 if is_paid else 0}
