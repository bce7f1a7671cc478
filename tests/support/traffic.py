"""Clients that send while the service dies, and the comparison afterwards."""

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2 as httpx

from support.service import (
    PATIENCE_S,
    Service,
    bearer,
    eventually,
    ledger_rows,
    start,
    stored_events,
    token_for,
    until_loaded,
)

SENDERS = 4
PAUSE_S = 0.01  # between two batches: the service should die, not the clients' machine be busy
USERS_OF_A_SENDER = 90  # few enough for the sketches to be exact


@dataclass(frozen=True)
class Batch:
    ids: list[str]
    amount: int  # 0: no payment


class Sender(threading.Thread):
    """Sends batches one after the other, and records the outcome of each."""

    def __init__(self, url: str, key: str, label: str, traffic: "Traffic") -> None:
        super().__init__()
        self.url, self.label, self.traffic = url, label, traffic
        self.client = httpx.Client(headers=bearer(key), timeout=PATIENCE_S)
        self.acked: list[Batch] = []
        self.unknown: list[Batch] = []

    def run(self) -> None:
        with self.client:
            for number in itertools.count():
                if self.traffic.is_over.wait(PAUSE_S):
                    return
                ids = [f"{self.label}-{number}-{place}" for place in range(20)]
                batch = Batch(ids, number + 1 if number % 2 == 0 else 0)
                outcome = self._send(self._items(batch, number))
                if outcome is not None:
                    (self.acked if outcome else self.unknown).append(batch)

    def _items(self, batch: Batch, number: int) -> list[dict[str, Any]]:
        user = f"{self.label}-{number % USERS_OF_A_SENDER}"
        items: list[dict[str, Any]] = [{"name": "view", "user": user, "id": id_} for id_ in batch.ids]
        if batch.amount:
            items.append({"name": "payment", "id": batch.ids[0], "props": {"amount": batch.amount, "currency": "eur"}})
        return items

    def _send(self, items: list[dict[str, Any]]) -> bool | None:
        """Return True for acknowledged, False for unknown, None for refused."""
        try:
            status = self.client.post(f"{self.url}/v1/events", json=items).status_code
        except httpx.ConnectError:
            time.sleep(0.05)
            return None
        except httpx.TransportError:
            return False
        assert status in {202, 503}, status
        if status == 503 and self.traffic.is_disk_sound:
            return None
        # A disk that fails after the write is a 503, too, and it is unknown what it holds.
        return status == 202 and not self.traffic.is_doubtful.is_set()


class Traffic:
    """Several senders to both ports of a service that listens at fixed ports."""

    def __init__(self, service: Service, *, is_disk_sound: bool = True) -> None:
        token = bearer(token_for(service.data))
        created = httpx.post(f"{service.url}/v1/apps", json={"name": "App"}, headers=token, timeout=PATIENCE_S).json()
        keys = f"{service.url}/v1/apps/{created['app_id']}/keys"
        eventually(lambda: httpx.get(keys, headers=token, timeout=PATIENCE_S).json()[0]["mirrored_at"])
        self.key = created["sk_key"]
        self.is_disk_sound = is_disk_sound
        self.is_over = threading.Event()
        self.is_doubtful = threading.Event()  # from now on answers may come from a machine without power
        urls = [service.ingest_url] * (SENDERS - 1) + [service.url]
        self.senders = [Sender(url, self.key, f"s{place}", self) for place, url in enumerate(urls)]

    def __enter__(self) -> Self:
        for sender in self.senders:
            sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.is_over.set()
        for sender in self.senders:
            sender.join()

    @property
    def acked(self) -> list[Batch]:
        return [batch for sender in self.senders for batch in list(sender.acked)]

    @property
    def possible(self) -> list[Batch]:
        return self.acked + [batch for sender in self.senders for batch in sender.unknown]

    def figures_when_loaded(self, service: Service) -> dict[str, int]:
        """Wait until everything acknowledged is loaded; return what a reader sees then."""
        acked = self.acked
        events = sum(len(batch.ids) for batch in acked) + sum(1 for batch in acked if batch.amount)
        until_loaded(service)  # and with it what was never acknowledged
        assert ledger_rows(service.data, "SELECT coalesce(sum(events), 0) FROM usage")[0][0] >= events
        return {metric: self._read(service, metric) for metric in ("mau", "dau")}

    def _read(self, service: Service, metric: str) -> int:
        def answer() -> httpx.Response | None:
            try:
                reply = httpx.get(f"{service.url}/v1/metrics/{metric}", headers=bearer(self.key), timeout=PATIENCE_S)
            except httpx.TransportError:
                return None
            return reply if reply.status_code == 200 else None

        return max(int(row[metric]) for row in eventually(answer).json()["data"])

    def check(self, service: Service, figures: dict[str, int]) -> None:
        """Compare what a stopped service has stored with what was sent."""
        stored = stored_events(service.data)
        ids = Counter(row[3] for row in stored)
        acked, possible = ({id_ for batch in some for id_ in batch.ids} for some in (self.acked, self.possible))
        assert acked <= ids.keys() <= possible
        assert set(ids.values()) == {1}, "nothing is stored twice"
        assert all(row[4] == 1 for row in stored)
        assert len({row[5] for row in stored}) == len(stored)
        assert figures["mau"] == len({row[2] for row in stored})
        assert figures["dau"] <= figures["mau"]
        self._check_money(service)

    def _check_money(self, service: Service) -> None:
        recorded = dict(ledger_rows(service.data, "SELECT id, amount FROM payments"))
        wanted, allowed = (
            {batch.ids[0]: batch.amount for batch in some if batch.amount} for some in (self.acked, self.possible)
        )
        found = {id_ if isinstance(id_, str) else id_.decode(): amount for id_, amount in recorded.items()}
        assert wanted.items() <= found.items() <= allowed.items()
        totals = ledger_rows(service.data, "SELECT total FROM day_totals WHERE currency = 'eur'")
        assert sum(int(total) for (total,) in totals) == sum(recorded.values())


def started_again(service: Service, *arguments: str) -> Service:
    """Start a new service at the address of the previous one."""
    ports = ("--port", str(urlsplit(service.url).port), "--ingest-port", str(urlsplit(service.ingest_url).port))
    return start(service.data, *ports, *arguments)
