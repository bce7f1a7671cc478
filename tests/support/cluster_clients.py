"""Clients of a cluster that try several nodes, a few times each, and write down what they were told."""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2 as httpx

from support.billing import sample
from support.cluster import Node
from support.cluster_app import App, signed
from support.cluster_history import NO_ANSWER, WRITE_KINDS, Answer, Event, Outcome, Payment, Version, Write, Written
from support.service import PATIENCE_S, bearer

TRIES_MAX = 4
TRY_S_MAX = 2.5
CONNECT_S_MAX = 0.7  # What is cut off does not answer at all.
USERS = 60  # few enough for the sketches to be exact
CURRENCIES = ("eur", "usd", "jpy")
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
_AMOUNTS = {"biller_a": 4704, "biller_b": 3920}  # of the sample deliveries, in US cents


class Client(threading.Thread):
    """One of the clients: repeats its work until the run is over, then ends it, and keeps every answer."""

    pause_s = 0.25  # The nodes should fail, not the clients' machine be busy.

    def __init__(self, seed: str, is_over: threading.Event) -> None:
        super().__init__(name=seed, daemon=True)
        self.try_s = TRY_S_MAX
        self.is_over = is_over
        self.chance = random.Random(seed)
        self.answers: list[Answer] = []
        self.writes: list[Write] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            timeout = httpx.Timeout(self.try_s, connect=min(self.try_s, CONNECT_S_MAX))
            with httpx.Client(timeout=timeout) as self.http:
                for number in itertools.count():
                    self.work(number)
                    if self.is_over.wait(self.pause_s):
                        break
                self.end()
        except BaseException as error:  # noqa: BLE001 - reported by the run
            self.error = error

    def work(self, number: int) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Do what every run must have done, when no node is in trouble any more."""

    def ask(self, node: Node, kind: str, request: Callable[[], httpx.Response]) -> httpx.Response | None:
        """Send one request; return None if no answer came. Raise one of `NOT_SENT` if it was certainly not sent."""
        sent_at = time.monotonic()
        try:
            reply = request()
        except NOT_SENT:
            raise
        except httpx.TransportError:
            self.answers.append(Answer(node.name, kind, NO_ANSWER, sent_at, time.monotonic()))
            return None
        has_retry_after = "retry-after" in reply.headers
        self.answers.append(Answer(node.name, kind, reply.status_code, sent_at, time.monotonic(), has_retry_after))
        return reply


class Sender(Client):
    """Sends events, batches, payments, subscriptions and deliveries, each with its ids until it is acknowledged."""

    def __init__(self, nodes: list[Node], seed: str, is_over: threading.Event, app: App) -> None:
        super().__init__(seed, is_over)
        self.nodes, self.app = nodes, app
        self.label = seed.replace(" ", "-")
        self.numbers = itertools.count()
        self.kinds = itertools.cycle(self.chance.sample(WRITE_KINDS, len(WRITE_KINDS)))

    def work(self, number: int) -> None:
        self._write(next(self.kinds))

    def end(self) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        acked = {write.kind for write in self.writes if write.outcome is Outcome.ACKED}
        for kind in WRITE_KINDS:
            while kind not in acked and time.monotonic() < ends_at:
                acked |= {kind} if self._write(kind) is Outcome.ACKED else set()

    def _write(self, kind: str) -> Outcome:
        make = {
            "event": self._event,
            "batch": self._batch,
            "mixed": self._mixed,
            "payment": self._payment,
            "subscription": self._subscription,
        }.get(kind, self._delivery)
        path, body, write = make(next(self.numbers), kind)
        headers = {} if "webhooks" in path else bearer(self.app.key)
        outcome = self._send(path, body, headers)
        self.writes.append(Write(outcome, kind, *write))
        return outcome

    def _send(self, path: str, body: object, headers: dict[str, str]) -> Outcome:
        """Try other nodes with the same ids. Only an answer tells; what was sent without one is unknown."""
        content = json.dumps(body).encode()
        outcome = Outcome.REFUSED
        nodes = self.chance.sample(self.nodes, len(self.nodes))
        for node in itertools.islice(itertools.cycle(nodes), TRIES_MAX):
            try:
                reply = self.ask(node, path.split("/")[2], partial(self._post, node, path, content, headers))
            except NOT_SENT:
                time.sleep(0.05)
                continue
            if reply is not None and reply.status_code in {200, 202}:
                assert reply.json().get("rejected", 0) == 0, reply.text
                return Outcome.ACKED
            if reply is None or reply.status_code == 503:
                outcome = Outcome.UNKNOWN  # A server may have stored it and died before it said so.
                time.sleep(0.1)
        return outcome

    def _post(self, node: Node, path: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        more = signed(path, content) if "webhooks" in path else {}
        headers = {"content-type": "application/json", **headers, **more}
        return self.http.post(f"{node.ingest_url}{path}", content=content, headers=headers)

    def _events(self, number: int, count: int) -> list[Event]:
        return [
            Event(f"{self.label}-{number}-{place}", f"u{self.chance.randrange(USERS)}", self.chance.random() < 0.5)
            for place in range(count)
        ]

    def _wire(self, event: Event) -> dict[str, Any]:
        at = {"at": f"{self.app.day}T12:00:00Z"} if event.is_dated else {}
        return {"name": "view", "id": event.id, "user": event.user, **at}

    def _event(self, number: int, _kind: str) -> tuple[str, Any, Written]:
        (event,) = self._events(number, 1)
        return "/v1/events", self._wire(event), Written((event,))

    def _batch(self, number: int, _kind: str) -> tuple[str, Any, Written]:
        events = self._events(number, self.chance.randint(2, 20))
        return "/v1/events", [self._wire(event) for event in events], Written(tuple(events))

    def _paid(self, number: int) -> tuple[Payment, dict[str, Any]]:
        payment = Payment(
            f"{self.label}-{number}",
            self.chance.randint(1, 10**6),
            self.chance.choice(CURRENCIES),
            self.chance.random() < 0.7,
        )
        props = {"amount": payment.amount, "currency": payment.currency, "earned": payment.is_earned}
        return payment, {"name": "payment", "id": payment.id, "props": props}

    def _payment(self, number: int, _kind: str) -> tuple[str, Any, Written]:
        payment, wire = self._paid(number)
        return "/v1/events", wire, Written(payments=(payment,))

    def _mixed(self, number: int, _kind: str) -> tuple[str, Any, Written]:
        events = self._events(number, 3)
        payment, wire = self._paid(number)
        return "/v1/events", [*map(self._wire, events), wire], Written(tuple(events), (payment,))

    def _subscription(self, number: int, _kind: str) -> tuple[str, Any, Written]:
        version = Version(f"{self.label}-s{number % 3}", number + 1, self.chance.randint(1, 10**5), "eur")
        return "/v1/objects", subscription_body(version), Written(versions=(version,))

    def _delivery(self, number: int, provider: str) -> tuple[str, Any, Written]:
        id_ = f"{self.label}-{number}"
        if provider == "biller_a":
            body = sample("stripe_invoice_paid_basic")
            body["id"], body["data"]["object"]["id"] = f"evt_{id_}", f"in_{id_}"
            payment = Payment(f"stripe:in_{id_}", _AMOUNTS[provider], "usd")
        else:
            body = sample("polar_order_paid_renewal")
            body["data"]["id"] = id_
            payment = Payment(f"polar:{id_}", _AMOUNTS[provider], "usd")
        return f"/v1/webhooks/{provider}/{self.app.project}", body, Written(payments=(payment,))


def subscription_body(version: Version) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=version.number)
    fields = {"status": "active", "mrr": version.mrr, "currency": version.currency, "at": at.isoformat()}
    return {"type": "subscription", "id": version.id, **fields}
