"""Machines are restarted in turn under load, and nothing is refused, lost or counted twice."""

import base64
import http.client
import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2 as httpx
import psycopg
import pytest

from support.clickhouse import ClickHouse
from support.nats import Nats
from support.postgres import Postgres
from support.service import (
    PATIENCE_S,
    SERVERS,
    Service,
    bearer,
    eventually,
    freeze,
    ledger_rows,
    start,
    stored_events,
    token_for,
    two_free_ports,
)

ROLES = ("api", "ingest", "loader")
POLL_S = 0.2


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def chosen(postgres):
    with ClickHouse() as clickhouse, Nats(servers=1) as nats:
        yield {
            "MAUVE_DATABASE_URL": postgres.create(f"own_{random.getrandbits(60)}"),
            "MAUVE_WAREHOUSE_URL": clickhouse.create(),
            "MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
            "MAUVE_BACKLOG_MB": "256",
            "MAUVE_READ_CACHE_SECONDS": "0",
            "MAUVE_DRAIN_SECONDS": "8",  # longer than the default, for a machine that is busy with tests
            **nats.settings(),
        }


class Machine:
    """A service that keeps its directory and its address when it is started again."""

    def __init__(self, data, role):
        self._data, self.role = data, role
        port = two_free_ports()
        self._arguments = ("--role", role, "--workers", "1", "--port", str(port), "--ingest-port", str(port + 1))
        self.service: Service = self._start()

    def _start(self):
        return start(self._data, *self._arguments)

    @property
    def url(self):
        return self.service.url

    def restart(self):
        assert self.service.stop() == 0
        self.service.process.stdout.close()
        self.service = self._start()


class Balancer(threading.Thread):
    """Asks each machine whether it is ready, as a load balancer does, and knows which were at the last look."""

    def __init__(self, machines):
        super().__init__()
        self._machines = machines
        self._is_over = threading.Event()
        self.ready: frozenset[str] = frozenset()

    def run(self):
        with ThreadPoolExecutor(len(self._machines)) as pool:
            while not self._is_over.wait(POLL_S):
                answers = pool.map(lambda machine: (machine.url, self._is_ready(machine.url)), self._machines)
                self.ready = frozenset(url for url, is_ready in answers if is_ready)

    def _is_ready(self, url):
        try:
            return httpx.get(f"{url}/readyz", timeout=PATIENCE_S).status_code == 200
        except httpx.TransportError:
            return False

    def choose(self, machines):
        return random.choice([machine.url for machine in machines if machine.url in self.ready])

    def end(self):
        self._is_over.set()
        self.join()


class Client(threading.Thread):
    """Sends one request after the other to ready machines, on connections that it keeps. It never retries."""

    def __init__(self, key: str, balancer: Balancer, machines: list[Machine], request: Callable[[int], tuple]) -> None:
        super().__init__()
        self._headers = {**bearer(key), "content-type": "application/json"}
        self._balancer, self._machines, self._request = balancer, machines, request
        self._connection: tuple[str, http.client.HTTPConnection] | None = None
        self._is_over = threading.Event()
        self.failures: list[object] = []
        self.done = 0

    def run(self):
        for number in itertools.count():
            if self._is_over.wait(0.05):
                return
            try:
                self._send(*self._request(number))
            except Exception as error:  # noqa: BLE001 - whatever a client would see
                self.failures.append(error)

    def _send(self, method, path, body, expected):
        connection = self._open()
        connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        reply = connection.getresponse()
        content = reply.read()
        if reply.getheader("connection") == "close":
            self._close()
        if reply.status == expected:
            self.done += 1
        else:
            self.failures.append((path, reply.status, content))

    def _open(self):
        if self._connection is not None and self._connection[0] not in self._balancer.ready:
            self._close()
        if self._connection is None:
            url = self._balancer.choose(self._machines)
            self._connection = url, http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
        return self._connection[1]

    def _close(self):
        self._connection[1].close()
        self._connection = None

    def end(self):
        self._is_over.set()
        self.join()
        if self._connection is not None:
            self._close()


def events_of(label):
    def request(number):
        items = [{"name": "seen", "user": label, "id": f"{label}-{number}-{place}"} for place in range(3)]
        if number % 3 == 0:
            paid = {"amount": number + 1, "currency": "eur"}
            items.append({"name": "payment", "id": f"{label}-{number}", "props": paid})
        return "POST", "/v1/events", items, 202

    return request


def reads(number):
    path = ("/v1/metrics/event_count?name=seen", "/v1/metrics/revenue", "/v1/metrics/mau")[number % 3]
    return "GET", path, None, 200


@pytest.fixture
def machines(chosen, tmp_path):
    started = []
    for role, number in itertools.product(ROLES, range(2)):
        SERVERS[tmp_path / f"{role}-{number}"] = chosen
        started.append(Machine(tmp_path / f"{role}-{number}", role))
    yield started
    stop_all(started)


def stop_all(machines):
    """Stop them without the wait for clients to move, which a second signal ends."""

    def has_ended(process):
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    for machine in machines:
        eventually(lambda machine=machine: has_ended(machine.service.process))
        machine.service.process.stdout.close()


@pytest.fixture
def balancer(machines):
    thread = Balancer(machines)
    thread.start()
    yield thread
    thread.end()


def of_role(machines, role):
    return [machine for machine in machines if machine.role == role]


def test_a_rolling_restart_under_load_fails_no_request_and_loses_nothing(machines, balancer):
    eventually(lambda: len(balancer.ready) == len(machines))
    api, ingest, loaders = (of_role(machines, role) for role in ROLES)
    key = new_key(api[0])
    eventually(lambda: all(knows(machine, key) for machine in ingest) and all(reads_with(each, key) for each in api))
    writers = [Client(key, balancer, ingest, events_of(label)) for label in ("a", "b")]
    clients = [*writers, Client(key, balancer, api, reads)]
    for client in clients:
        client.start()
    try:
        for first in range(2):
            before = [client.done for client in clients]
            with ThreadPoolExecutor(len(ROLES)) as pool:
                list(pool.map(Machine.restart, (each[first] for each in (api, ingest, loaders))))
            eventually(lambda: len(balancer.ready) == len(machines))
            eventually(lambda before=before: all(now.done > was for now, was in zip(clients, before, strict=True)))
    finally:
        for client in clients:
            client.end()
    assert [client.failures for client in clients] == [[], [], []]
    sent = sum(writer.done for writer in writers)
    payments = [number for writer in writers for number in range(0, writer.done, 3)]
    assert sent > 20
    data = api[0].service.data
    wanted = 3 * sent
    eventually(lambda: len(stored_events(data)) >= wanted)
    seen = [row[3] for row in stored_events(data) if row[1] == "seen"]
    assert (len(seen), len(set(seen))) == (wanted, wanted)
    ((count, total),) = ledger_rows(data, "SELECT count(*), sum(amount) FROM payments")
    assert (count, int(total)) == (len(payments), sum(number + 1 for number in payments))


def new_key(machine):
    token = token_for(machine.service.data)
    return httpx.post(f"{machine.url}/v1/apps", json={"name": "App"}, headers=bearer(token)).json()["sk_key"]


def knows(machine, key):
    """Return whether the machine accepts the key, with a batch that stores nothing."""
    return httpx.post(f"{machine.url}/v1/events", content=b"{", headers=bearer(key)).status_code in {400, 415}


def reads_with(machine, key):
    return httpx.get(f"{machine.url}/v1/metrics/mau", headers=bearer(key)).status_code == 200


NOTE_TRIES = """
CREATE TABLE lease_tries (is_try boolean, is_free boolean);
CREATE FUNCTION note_try() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger.lease_tries SELECT current_query() LIKE '%epoch + %', holder IS NULL FROM ledger.load_lease;
    RETURN NULL;
END $$;
CREATE TRIGGER note_try BEFORE UPDATE ON load_lease FOR EACH STATEMENT EXECUTE FUNCTION note_try()
"""


class TestTheLease:
    """Of two machines with the role of the loader."""

    @pytest.fixture
    def pair(self, chosen, tmp_path):
        started = []
        for name in ("one", "other"):
            SERVERS[tmp_path / name] = chosen | {"MAUVE_DRAIN_SECONDS": "120"}
            started.append(Machine(tmp_path / name, "loader"))
        eventually(lambda: holder(started[0]) in {machine_name(machine) for machine in started})
        has_it = holder(started[0]) == machine_name(started[0])
        yield started if has_it else started[::-1]
        stop_all(started)

    def test_it_is_released_at_the_start_of_a_clean_stop(self, pair, chosen):
        """The waiting loader, which tries every second, takes it with its first try after that."""
        holding, waiting = pair
        with noted_tries(chosen["MAUVE_DATABASE_URL"]) as tries:
            holding.service.process.send_signal(signal.SIGTERM)
            eventually(lambda: holder(waiting) == machine_name(waiting))
            assert tries() == 1
        assert holding.service.process.poll() is None, "it still answers"
        assert httpx.get(f"{holding.url}/readyz", timeout=PATIENCE_S).status_code == 503

    def test_a_machine_that_is_paused_loses_it(self, pair):
        holding, waiting = pair
        pids = [holding.service.process.pid, *holding.service.child_pids().values()]
        for pid in pids:
            freeze(pid)
        try:
            eventually(lambda: holder(waiting) == machine_name(waiting))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@contextmanager
def noted_tries(url):
    """Count the tries to acquire the lease that find it free, with a trigger: it fires even if no row is changed."""
    with psycopg.connect(url, options="-c search_path=ledger", autocommit=True) as connection:
        connection.execute(NOTE_TRIES)
        try:
            yield lambda: connection.execute("SELECT count(*) FROM lease_tries WHERE is_try AND is_free").fetchone()[0]
        finally:
            connection.execute("DROP FUNCTION note_try CASCADE; DROP TABLE lease_tries")


def holder(machine):
    ((name,),) = ledger_rows(machine.service.data, "SELECT holder FROM load_lease")
    return name


def machine_name(machine):
    path = machine.service.data / "machine"  # written when the name is first needed
    return path.read_text().strip() if path.exists() else ""
