"""A standby of PostgreSQL is promoted while two machines load and take payments.

Proves: failover.
"""

import os
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager

import httpx2 as httpx
import psycopg
import pytest

from support.postgres import Postgres, Standby
from support.service import (
    PATIENCE_S,
    SERVERS,
    bearer,
    eventually,
    freeze,
    ledger_rows,
    running,
    stored_events,
    token_for,
    until_loaded,
)
from support.traffic import Traffic

PATIENT = {"MAUVE_HANG_SECONDS": "600"}  # A process that the test pauses is not replaced.


@pytest.fixture
def pair():
    with Postgres() as primary, Standby(primary) as standby:
        yield primary, standby


@pytest.fixture
def machines(pair, new_installation, clickhouse, own_nats_server, tmp_path):
    """Two running machines of one installation that know both servers."""
    primary, standby = pair
    settings = new_installation(primary, clickhouse, own_nats_server)
    settings["MAUVE_DATABASE_URL"] = standby.shared_url(settings["MAUVE_DATABASE_URL"].rpartition("/")[2])
    with ExitStack() as opened:
        found = []
        for name in ("first", "second"):
            SERVERS[tmp_path / name] = settings
            found.append(opened.enter_context(running(tmp_path / name, "--workers", "1", environment=PATIENT)))
        yield found


def holder(machine):
    """Return who holds the lease, and its epoch."""
    ((name, epoch),) = ledger_rows(machine.data, "SELECT holder, epoch FROM load_lease")
    return name, epoch


def id_of(machine):
    return (machine.data / "machine").read_text().strip()


def wait_for_more(traffic, batches=30):
    before = len(traffic.acked)
    eventually(lambda: len(traffic.acked) >= before + batches)


@contextmanager
def paused(machine):
    pids = [machine.process.pid, machine.child_pids()["core"]]
    freeze(*pids)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_failover_to_a_synchronous_standby_loses_nothing_and_counts_nothing_twice(pair, machines):
    primary, standby = pair
    standby.make_synchronous()
    first, second = machines
    with Traffic(first, is_disk_sound=False) as traffic:
        wait_for_more(traffic)
        eventually(lambda: ledger_rows(first.data, "SELECT 1 FROM load_positions"))
        primary.kill()
        standby.promote()
        wait_for_more(traffic)
    figures = traffic.figures_when_loaded(first)
    assert [machine.stop() for machine in (second, first)] == [0, 0]
    traffic.check(first, figures)
    ((usage,),) = ledger_rows(first.data, "SELECT sum(events) FROM usage")
    ((payments,),) = ledger_rows(first.data, "SELECT count(*) FROM payments")
    assert usage == len(stored_events(first.data)) + payments


class Client:
    """Sends single events and single payments, one after the other."""

    def __init__(self, machine):
        token = bearer(token_for(machine.data))
        app = httpx.post(f"{machine.url}/v1/apps", json={"name": "App"}, headers=token, timeout=PATIENCE_S).json()
        self._url, self._headers = f"{machine.ingest_url}/v1/events", bearer(app["sk_key"])
        self.sent, self.paid = set(), set()

    def send(self, name, count=10):
        for place in range(count):
            id_ = f"{name}-{place}"
            eventually(lambda id_=id_: self._post({"name": "view", "id": id_}))
            self.sent.add(id_)
            payment = {"name": "payment", "id": id_, "props": {"amount": 1, "currency": "eur"}}
            eventually(lambda payment=payment: self._post(payment))
            self.paid.add(id_)

    def _post(self, item):
        return httpx.post(self._url, json=item, headers=self._headers, timeout=PATIENCE_S).status_code == 202


def loaded(machine):
    return {row[3] for row in stored_events(machine.data)}


def test_a_failover_that_loses_the_last_turn_lets_one_loader_commit_and_counts_nothing_twice(pair, machines):
    """Both loaders then have a turn with the same epoch: the lost one, and the one that the new primary grants."""
    primary, standby = pair
    machines.sort(key=lambda machine: id_of(machine) != eventually(lambda: holder(machine)[0]))
    loading, other = machines
    client = Client(other)
    client.send("before")
    eventually(lambda: client.sent <= loaded(other))
    before = holder(other)
    eventually(lambda: has_replayed(standby, primary))
    standby.kill()
    with paused(loading):
        eventually(lambda: holder(other)[0] == id_of(other))
        client.send("lost", 5)
        eventually(lambda: client.sent <= loaded(other))
        assert holder(other)[1] > before[1]
        primary.kill()
    standby.start()
    standby.promote()
    client.send("after")
    until_loaded(other)
    eventually(lambda: client.sent <= loaded(other))
    eventually(lambda: counted(other) == len(client.sent))
    assert [machine.stop() for machine in machines] == [0, 0]
    assert set(Counter(row[3] for row in stored_events(other.data)).values()) == {1}
    assert all(row[4] == 1 for row in stored_events(other.data))
    found = ledger_rows(other.data, "SELECT amount FROM payments")
    totals = ledger_rows(other.data, "SELECT total FROM day_totals WHERE currency = 'eur'")
    assert sum(int(total) for (total,) in totals) == len(found) == len(client.paid) - 5, "an asynchronous standby lags"


def counted(machine):
    """Return how many events the ledger counts, without payments."""
    ((events,),) = ledger_rows(machine.data, "SELECT coalesce(sum(events), 0) FROM usage")
    ((payments,),) = ledger_rows(machine.data, "SELECT count(*) FROM payments")
    return events - payments


def has_replayed(standby, primary):
    with psycopg.connect(primary.address("postgres", "postgres"), autocommit=True) as connection:
        ((written,),) = connection.execute("SELECT pg_current_wal_lsn()").fetchall()
    with psycopg.connect(standby.address("postgres", "postgres"), autocommit=True) as connection:
        ((has_all,),) = connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written]).fetchall()
    return has_all
