"""A machine that evaluates and sends when a test tells it to, and the forms of the alerts page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import httpx2 as httpx
from prometheus_client import CollectorRegistry

from mauve.alerts.channels import Notice, Target
from mauve.alerts.outbox import AlertParts, Outbox
from mauve.alerts.runner import AlertRunner
from support.browser import Browser

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEBHOOK = "https://hooks.example.com/services/T0/B0/canary"


class Recorder:
    """Sends nothing; it keeps the messages, and fails as told."""

    def __init__(self) -> None:
        self.sent: list[tuple[Target, Notice]] = []
        self.failure: Exception | None = None

    def send(self, target: Target, notice: Notice) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append((target, notice))

    def take(self) -> list[tuple[Target, Notice]]:
        taken, self.sent = self.sent, []
        return taken


class Machine:
    """A machine that evaluates and sends when it is told to."""

    def __init__(
        self,
        parts: AlertParts,
        recorder: Recorder,
        kinds: Iterable[str] = ("email", "webhook", "slack", "discord"),
    ) -> None:
        self.parts = replace(parts, senders=dict.fromkeys(kinds, recorder))
        self._recorder = recorder
        self.runner = AlertRunner(self.parts)
        self.registry = CollectorRegistry()
        self.outbox = Outbox(self.parts, self.registry)

    def work(self) -> list[tuple[str, Notice]]:
        """Evaluate and send; return the notices that were sent, by the address of their receiver."""
        self.runner.run_due()
        self.outbox.send_due()
        return [(target.address, notice) for target, notice in self._recorder.take()]


def add_channel(
    browser: Browser, kind: str = "slack", address: str = WEBHOOK, name: str = "Team chat"
) -> httpx.Response:
    return browser.send("/alerts/channels", {"kind": kind, "name": name, "address": address})


def add_rule(browser: Browser, app: Mapping[str, str], kind: str, **fields: str) -> httpx.Response:
    reply = browser.send(f"/alerts/rules/{kind}", {"app": app["app_id"], "cooldown": "24", **fields})
    assert "The rule is added" in reply.text, reply.text
    return reply


def subscribe(browser: Browser, digest: str = "never", alerts: str = "yes") -> None:
    assert "Saved." in browser.send("/alerts/wishes", {"digest": digest, "alerts": alerts}).text


def text_of(reply: httpx.Response) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2]))
