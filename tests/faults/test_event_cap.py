"""The event cap holds while the core is down, for any length of time, and while workers are killed.

Proves: event-cap.
"""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from mauve.stores.limits.accepted import FileAcceptedCounts
from support.service import Service, bearer, eventually, freeze, is_alive, mauve_json, running, token_for

CAP = 1_000
BATCH = 10
WORKERS = 2
CONNECTIONS = 16  # enough that each worker gets some
LAG_BATCHES = 10  # at one a second: twice as long as counts take to reach the other process


class Sender:
    """Send batches over connections to both workers, and count what was accepted."""

    def __init__(self, service: Service, key: str) -> None:
        self._service = service
        self._headers = bearer(key)
        self._clients = [httpx.Client() for _ in range(CONNECTIONS)]
        self._sent = 0
        self.accepted = 0

    def send(self, items: list[dict] | None = None) -> httpx.Response | None:
        """Return the reply; None if the worker at the other end is gone."""
        self._sent += 1
        batch = items or [{"name": "view", "id": f"{self._sent}/{number}"} for number in range(BATCH)]
        try:
            reply = self._clients[self._sent % CONNECTIONS].post(
                f"{self._service.ingest_url}/v1/events", headers=self._headers, json=batch
            )
        except httpx.TransportError:
            return None
        self.accepted += reply.json()["accepted"] if reply.status_code == 202 else 0
        return reply

    def statuses(self, batches: int) -> set[int]:
        """Send many batches while all workers run."""
        return {eventually(self.send, timeout_s=60).status_code for _ in range(batches)}

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def core_stopped(service: Service) -> Iterator[None]:
    """Stop the core and each replacement that is started; resume the last one at the end."""
    is_done = threading.Event()

    def stop_it() -> None:
        while not is_done.is_set():
            pid = service.child_pids().get("core")
            if pid is not None:
                freeze(pid)
            is_done.wait(0.01)

    watching = threading.Thread(target=stop_it)
    watching.start()
    try:
        yield
    finally:
        is_done.set()
        watching.join()
        os.kill(eventually(lambda: service.child_pids().get("core")), signal.SIGCONT)


def shared(data: Path) -> dict[int, int]:
    """Return the accepted count that each process shares."""
    exchange = FileAcceptedCounts(data / "accepted", 255).others()
    return {stream: sum(accepted.sums(0).values()) for stream, accepted in exchange}


def counted(data: Path) -> int:
    with closing(sqlite3.connect(f"file:{data}/ledger.db?mode=ro", uri=True)) as ledger:
        return ledger.execute("SELECT coalesce(sum(events), 0) FROM usage").fetchone()[0]


def kill_the_workers(service: Service) -> None:
    killed = [pid for name, pid in eventually(service.child_pids).items() if name != "core"]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, killed)))
    eventually(lambda: len(service.child_pids()) == 1 + WORKERS, timeout_s=60)


def reach_the_cap(sender: Sender) -> None:
    """Send one batch a second until several in a row are refused, and check that few are accepted before."""
    refused, accepted_max = 0, max(sender.accepted, CAP) + (WORKERS + LAG_BATCHES) * BATCH
    while refused < 2 * WORKERS:
        reply = sender.send()
        refused = refused + 1 if reply is not None and reply.status_code == 403 else 0
        assert sender.accepted <= accepted_max
        time.sleep(1)


@pytest.mark.timeout(300)
def test_the_cap_holds_while_the_core_is_down_and_workers_are_killed(tmp_path):
    with running(tmp_path / "data", "--workers", str(WORKERS)) as service, ExitStack() as opened:
        org = mauve_json(service.data, "org", "create", "Acme")["org_id"]
        token = token_for(service.data, org=org)
        app = httpx.post(f"{service.url}/v1/apps", headers=bearer(token), json={"name": "An app"}).json()
        mauve_json(service.data, "org", "limits", org, "--event-cap", str(CAP))
        sender = opened.enter_context(closing(Sender(service, app["sk_key"])))

        with core_stopped(service):
            payment = {"name": "payment", "id": "p1", "props": {"amount": 1, "currency": "eur"}}
            assert eventually(lambda: sender.send([{"name": "view"}, payment])).status_code == 202
            assert sender.statuses((CAP - 20 * BATCH) // BATCH) == {202}
            eventually(lambda: sum(shared(service.data).values()) == sender.accepted - 2)
            assert all(shared(service.data)[number] for number in (1, 2)), "both have accepted some"
            reach_the_cap(sender)
            at_the_cap = sender.accepted
            assert at_the_cap >= CAP
            assert sender.statuses(500) == {403}

            kill_the_workers(service)
            assert sender.statuses(100) == {403}, "the new workers know what the old ones accepted"
            assert sender.accepted == at_the_cap

            mauve_json(service.data, "org", "limits", org, "--event-cap", str(2 * CAP))
            eventually(lambda: sender.send().status_code == 202, timeout_s=60)
            mauve_json(service.data, "org", "limits", org, "--event-cap", str(CAP))
            time.sleep(1)
            reach_the_cap(sender)

        eventually(lambda: counted(service.data) == sender.accepted, timeout_s=120)
        eventually(lambda: not any(shared(service.data).values()), timeout_s=60)
        assert sender.statuses(50) == {403}
        reply = eventually(lambda: post_to_the_core(service, app["sk_key"]), timeout_s=60)
        assert (reply.status_code, reply.json()["code"], reply.json()["cap_events"]) == (403, "event_cap_reached", CAP)
        assert counted(service.data) == sender.accepted
        mauve_json(service.data, "org", "limits", org, "--event-cap", str(sender.accepted + 1))
        eventually(lambda: sender.send().status_code == 202)


def post_to_the_core(service: Service, key: str) -> httpx.Response | None:
    try:
        return httpx.post(f"{service.url}/v1/events", headers=bearer(key), json=[{"name": "view"}])
    except httpx.TransportError:
        return None
