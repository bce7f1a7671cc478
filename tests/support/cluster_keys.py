"""Clients of a cluster that mint keys, use them on every machine, revoke them, and keep using them."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from support.cluster import Node
from support.cluster_answers import KEY_USES, KEYS_MIN, REVOCATION_S_MAX
from support.cluster_app import App
from support.cluster_clients import NOT_SENT, Client, subscription_body
from support.cluster_history import Event, KeyLife, Outcome, Payment, Version, Write, Written
from support.service import PATIENCE_S, bearer

CONTROL_S_MAX = 18.0  # A revocation waits up to 10.5 s for NATS, and is answered after that.
KEYS_MAX = 4
_MARGIN_S = 0.2


@dataclass
class Key:
    credential: str
    life: KeyLife = field(default_factory=KeyLife)

    @property
    def is_accepted(self) -> bool:
        return any(use.status in {200, 202} for use in self.life.uses)


class KeyHolder(Client):
    """Mints keys and revokes each when a node has accepted it, again until the revocation is answered."""

    pause_s = 0.5

    def __init__(self, apis: list[Node], seed: str, is_over: threading.Event, app: App, keys: list[Key]) -> None:
        super().__init__(seed, is_over)
        self.apis, self.app, self.keys = apis, app, keys

    def work(self, number: int) -> None:
        if len(self.keys) < KEYS_MAX:
            self._live_and_revoke()

    def end(self) -> None:
        while len(self.keys) < KEYS_MIN:
            self._live_and_revoke()

    def _live_and_revoke(self) -> None:
        minted = self._until("POST", "", 201).json()
        key = Key(minted["key"])
        self.keys.append(key)
        ends_at = time.monotonic() + PATIENCE_S
        while not key.is_accepted:
            assert time.monotonic() < ends_at, "a new key was not accepted"
            time.sleep(0.05)
        key.life.revoking_at = time.monotonic()
        self._until("DELETE", f"/{minted['key_id']}", 204)
        key.life.revoked_at = time.monotonic()

    def _until(self, method: str, path: str, status: int) -> httpx.Response:
        """Repeat a request, to any of the api machines, until it has succeeded."""
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            reply = self._control(self.chance.choice(self.apis), method, path)
            if reply is not None and reply.status_code == status:
                return reply
            time.sleep(0.1)
        raise AssertionError(f"{method} of a key was never answered {status}")

    def _control(self, node: Node, method: str, path: str) -> httpx.Response | None:
        url = f"{node.api_url}/v1/apps/{self.app.app_id}/keys{path}"
        body = {"kind": "sk"} if method == "POST" else None
        timeout = httpx.Timeout(max(self.try_s, CONTROL_S_MAX), connect=self.try_s)

        def request() -> httpx.Response:
            return self.http.request(method, url, json=body, headers=bearer(self.app.token), timeout=timeout)

        try:
            return self.ask(node, "keys", request)
        except NOT_SENT:
            return None


class KeyUser(Client):
    """Uses every key on one machine for events, payments, subscriptions and reads, most of all the newest one."""

    def __init__(self, node: Node, seed: str, is_over: threading.Event, keys: list[Key]) -> None:
        super().__init__(seed, is_over)
        self.node, self.keys = node, keys
        self.label = seed.replace(" ", "-")
        self.kinds = KEY_USES if node.has_api else KEY_USES[:-1]

    def work(self, number: int) -> None:
        if self.keys:
            key = self.keys[-1] if self.chance.random() < 0.7 else self.chance.choice(self.keys)
            self._use(key, self.kinds[number % len(self.kinds)], str(number))

    def end(self) -> None:
        """Use each key for everything, later than it may still be accepted."""
        revoked_at = max(key.life.revoked_at or 0.0 for key in self.keys)
        time.sleep(max(0.0, revoked_at + REVOCATION_S_MAX + _MARGIN_S - time.monotonic()))
        for place, key in enumerate(self.keys):
            for kind in self.kinds:
                self._use(key, kind, f"end-{place}")

    def _use(self, key: Key, kind: str, number: str) -> None:
        """Send something with a key; it is stored only if the key is accepted."""
        path, body, write = _content(kind, f"{self.label}-{number}-{kind}")
        headers = bearer(key.credential)
        try:
            if kind == "reads":
                url = f"{self.node.api_url}/v1/metrics/revenue"
                reply = self.ask(self.node, kind, lambda: self.http.get(url, headers=headers))
            else:
                url = f"{self.node.ingest_url}{path}"
                reply = self.ask(self.node, kind, lambda: self.http.post(url, json=body, headers=headers))
        except NOT_SENT:
            return
        key.life.uses.append(self.answers.pop())
        if reply is None or reply.status_code == 503:
            self.writes.append(Write(Outcome.UNKNOWN, "key", *write))
        elif reply.status_code == 202:
            self.writes.append(Write(Outcome.ACKED, "key", *write))


def _content(kind: str, id_: str) -> tuple[str, dict[str, Any], Written]:
    match kind:
        case "events":
            return "/v1/events", {"name": "view", "id": id_, "user": "key holder"}, Written((Event(id_, "key holder"),))
        case "payments":
            props = {"amount": 1, "currency": "eur"}
            return "/v1/events", {"name": "payment", "id": id_, "props": props}, Written((), (Payment(id_, 1, "eur"),))
        case "objects":
            version = Version(id_, 1, 1, "eur")
            return "/v1/objects", subscription_body(version), Written(versions=(version,))
    return "", {}, Written()
