"""Every process is killed in a loop, under load; afterwards everything acknowledged is there exactly once."""

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter

import httpx2 as httpx

from support import bearer, eventually, ledger_rows, running, stored_events, token_for

KILLS = 12
SENDERS = 4
BATCHES_MIN = 50  # acknowledged, so that the load was real


class Sender(threading.Thread):
    """Sends batches one after the other, and remembers what became of each."""

    def __init__(self, url, key, name, stopping):
        super().__init__()
        self.url, self.key, self.label, self.stopping = url, key, name, stopping
        self.acked, self.unknown = {}, {}

    def run(self):
        for number in itertools.count():
            if self.stopping.is_set():
                return
            ids = [f"{self.label}-{number}-{place}" for place in range(20)]
            batch = [{"name": "view", "user": id_, "id": id_} for id_ in ids]
            batch.append({"name": "payment", "id": ids[0], "props": {"amount": number + 1, "currency": "eur"}})
            if number % 2:
                batch.pop()
            outcome = self._send(batch)
            if outcome is not None:
                (self.acked if outcome else self.unknown)[number] = (ids, number + 1 if number % 2 == 0 else 0)

    def _send(self, batch):
        """Return True for acknowledged, False for unknown, None for refused."""
        try:
            status = httpx.post(f"{self.url}/v1/events", json=batch, headers=bearer(self.key), timeout=10).status_code
        except httpx.ConnectError:
            time.sleep(0.05)
            return None
        except httpx.TransportError:
            return False
        assert status in {202, 503}, status
        return True if status == 202 else None


def test_after_kills_of_every_process_each_acknowledged_event_is_counted_exactly_once(tmp_path):
    chance = random.Random(20261115)
    with running(tmp_path / "data", "--workers", "2") as service:
        reply = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=bearer(token_for(service.data)))
        key = reply.json()["sk_key"]
        stopping = threading.Event()
        urls = [service.ingest_url] * (SENDERS - 1) + [service.url]
        senders = [Sender(url, key, f"s{place}", stopping) for place, url in enumerate(urls)]
        for sender in senders:
            sender.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.2))
            victims = eventually(service.child_pids)
            os.kill(chance.choice(sorted(victims.values())), signal.SIGKILL)
        eventually(lambda: sum(len(sender.acked) for sender in senders) > BATCHES_MIN, timeout_s=60)
        stopping.set()
        for sender in senders:
            sender.join()
        acked = [batch for sender in senders for batch in sender.acked.values()]
        unknown = [batch for sender in senders for batch in sender.unknown.values()]
        acked_ids = {id_ for ids, _ in acked for id_ in ids}
        possible_ids = acked_ids | {id_ for ids, _ in unknown for id_ in ids}
        payments = sum(1 for _, amount in acked if amount)

        def is_loaded():
            counted = ledger_rows(service.data, "SELECT coalesce(sum(events), 0) FROM usage")[0][0]
            return counted >= len(acked_ids) + payments

        eventually(is_loaded, timeout_s=60)
        time.sleep(1.5)
        assert service.stop() == 0

    stored = stored_events(tmp_path / "data")
    ids = Counter(row[3] for row in stored)
    assert acked_ids <= set(ids) <= possible_ids
    assert set(ids.values()) == {1}, "nothing is stored twice"
    assert all(row[4] == 1 for row in stored)
    assert len({row[5] for row in stored}) == len(stored)

    recorded = dict(ledger_rows(tmp_path / "data", "SELECT id, amount FROM payments"))
    wanted = {ids_[0]: amount for ids_, amount in acked if amount}
    allowed = wanted | {ids_[0]: amount for ids_, amount in unknown if amount}
    assert wanted.items() <= {_plain(id_): amount for id_, amount in recorded.items()}.items() <= allowed.items()
    totals = ledger_rows(tmp_path / "data", "SELECT total FROM day_totals WHERE currency = 'eur'")
    assert sum(int(total) for (total,) in totals) == sum(recorded.values())


def _plain(text):
    return text if isinstance(text, str) else text.decode()
