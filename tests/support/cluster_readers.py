"""Clients of a cluster that read, browse and guess passwords: at both api machines at once, up to their limits."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx2 as httpx

from mauve.access.sign_in_attempts import PAIR_BURST
from support.cluster import Node
from support.cluster_app import ALLOWANCE, BROWSER, CEILING, App
from support.cluster_clients import NOT_SENT, Client
from support.cluster_history import NO_ANSWER, Limit
from support.service import PATIENCE_S, bearer

LIMITS = (
    Limit("allowance", ALLOWANCE, ALLOWANCE),
    Limit("ceiling", CEILING, CEILING, window_s=60.0, memory_s=60.0),
    Limit("attempts", PAIR_BURST, PAIR_BURST + 1, window_s=60.0, taken=400),  # Every minute allows another one.
)
_METRICS = ("mau", "revenue", "dau", "volume")
_REFUSED_PAUSE_S = 1.0  # between questions that are refused anyway


class Reader(Client):
    """Reads metrics of one api machine with a control token, each with another window, so that no cache can answer."""

    pause_s = 0.4

    def __init__(self, node: Node, seed: str, is_over: threading.Event, app: App) -> None:
        super().__init__(seed, is_over)
        self.node, self.app = node, app
        self.place = self.chance.randrange(300)
        self.refused: set[str] = set()  # kinds whose limit is reached

    def work(self, number: int) -> None:
        self.read("allowance", self.app.token, number)
        if "allowance" in self.refused:
            self.is_over.wait(_REFUSED_PAUSE_S)

    def end(self) -> None:
        self.until_refused("allowance", lambda number: self.read("allowance", self.app.token, number))

    def until_refused(self, kind: str, act: Callable[[int], None]) -> None:
        ends_at, number = time.monotonic() + PATIENCE_S, 1000
        while kind not in self.refused and time.monotonic() < ends_at:
            act(number)
            number += 1

    def read(self, kind: str, credential: str, number: int) -> None:
        since = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=(self.place + number) % 300)).date()
        project = f"&project={self.app.project}" if credential == self.app.token else ""
        url = f"{self.node.api_url}/v1/metrics/{_METRICS[number % 4]}?date_from={since}{project}"
        self.note(kind, lambda: self.http.get(url, headers=bearer(credential)))

    def note(self, kind: str, request: Callable[[], httpx.Response]) -> None:
        with suppress(*NOT_SENT):
            reply = self.ask(self.node, kind, request)
            if reply is not None and reply.status_code == 429:
                self.refused.add(kind)


class Visitor(Reader):
    """Reads as an organization with few reads a minute, uses a session, and tries wrong passwords of another user."""

    def work(self, number: int) -> None:
        self._open_page()
        if number % 8 == 0 or "ceiling" not in self.refused:
            self.read("ceiling", self.app.limited_key, number)
        if number % 8 == 0 or "attempts" not in self.refused:
            self._guess()

    def end(self) -> None:
        self.until_refused("ceiling", lambda number: self.read("ceiling", self.app.limited_key, number))
        self.until_refused("attempts", lambda _: self._guess())
        ends_at = time.monotonic() + PATIENCE_S
        self._open_page()
        while self.answers[-1].status in {503, NO_ANSWER} and time.monotonic() < ends_at:
            self._open_page()

    def _open_page(self) -> None:
        headers = {**BROWSER, "cookie": "; ".join(f"{name}={value}" for name, value in self.app.session.items())}
        self.note("session", lambda: self.http.get(f"{self.node.api_url}/account", headers=headers))

    def _guess(self) -> None:
        form = {"email": f"{self.app.project}@example.com", "password": "a wrong password"}
        headers = {**BROWSER, "x-forwarded-for": self.app.address}
        self.note("attempts", lambda: self.http.post(f"{self.node.api_url}/signin", data=form, headers=headers))
