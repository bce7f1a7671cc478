"""A cap holds over all processes of a service whose log is on NATS.

Proves: event-cap.
"""

import os
import signal
import time

import httpx2 as httpx

from support.nats_service import WORKERS, service_on, shared_events
from support.service import bearer, eventually, freeze, is_alive, ledger_rows, mauve_json

CAP, BATCH, CONNECTIONS = 300, 10, 16
LAG_BATCHES = 10  # at one a second: far longer than counts take to reach the other process


class Sender:
    """Send batches over connections to all workers, and count what was accepted."""

    def __init__(self, service, key):
        self._url = f"{service.ingest_url}/v1/events"
        self._clients = [httpx.Client(headers=bearer(key)) for _ in range(CONNECTIONS)]
        self._sent = 0
        self.accepted = 0

    def send(self):
        self._sent += 1
        batch = [{"name": "view", "id": f"{self._sent}/{number}"} for number in range(BATCH)]
        try:
            status = self._clients[self._sent % CONNECTIONS].post(self._url, json=batch).status_code
        except httpx.TransportError:
            return None
        self.accepted += BATCH if status == 202 else 0
        return status

    def wait_until_known(self):
        """Wait until every worker knows the key. An empty batch is refused, and counts nothing."""
        eventually(lambda: all(client.post(self._url, json=[]).status_code != 401 for client in self._clients))

    def statuses(self, batches):
        return {eventually(self.send) for _ in range(batches)}

    def close(self):
        for client in self._clients:
            client.close()


def reach_the_cap(sender):
    """Send one batch a second until several in a row are refused, and check that few are accepted before."""
    refused, accepted_max = 0, CAP + (WORKERS + LAG_BATCHES) * BATCH
    while refused < 2 * WORKERS:
        refused = refused + 1 if sender.send() == 403 else 0
        assert sender.accepted <= accepted_max
        time.sleep(1)


def test_a_cap_holds_over_all_processes_without_the_core(own_nats_server, tmp_path, opened):
    with service_on(own_nats_server, tmp_path, MAUVE_HANG_SECONDS="0") as (service, org, app):
        mauve_json(service.data, "org", "limits", org, "--event-cap", str(CAP))
        # A worker that knows this key knows the cap, which was published before it.
        key = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "sk")["key"]
        sender = opened(Sender(service, key))
        sender.wait_until_known()
        core = service.child_pids()["core"]
        freeze(core)
        try:
            assert sender.statuses((CAP - 50) // BATCH) == {202}
            eventually(lambda: shared_events(service.data) == sender.accepted)
            reach_the_cap(sender)
            assert sender.accepted >= CAP
            assert sender.statuses(50) == {403}
            eventually(lambda: shared_events(service.data) == sender.accepted)

            workers = [pid for name, pid in service.child_pids().items() if name != "core"]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: not any(map(is_alive, workers)))
            assert sender.statuses(50) == {403}, "the new workers know what the old ones had shared"
        finally:
            os.kill(core, signal.SIGCONT)
        eventually(lambda: ledger_rows(service.data, "SELECT sum(events) FROM usage") == [(sender.accepted,)])
        eventually(lambda: shared_events(service.data) == 0)
        assert sender.statuses(20) == {403}
