"""A machine that evaluates and sends when a test tells it to, and the forms of the alerts page."""

import re
from dataclasses import replace

from prometheus_client import CollectorRegistry

from mauve.alerts.outbox import Outbox
from mauve.alerts.runner import AlertRunner

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEBHOOK = "https://hooks.example.com/services/T0/B0/canary"


class Recorder:
    """Sends nothing; it keeps the messages, and fails as told."""

    def __init__(self):
        self.sent = []
        self.failure = None

    def send(self, target, notice):
        if self.failure is not None:
            raise self.failure
        self.sent.append((target, notice))

    def take(self):
        taken, self.sent = self.sent, []
        return taken


class Machine:
    """A machine that evaluates and sends when it is told to."""

    def __init__(self, parts, recorder, kinds=("email", "webhook", "slack", "discord")):
        self.parts = replace(parts, senders=dict.fromkeys(kinds, recorder))
        self._recorder = recorder
        self.runner = AlertRunner(self.parts)
        self.registry = CollectorRegistry()
        self.outbox = Outbox(self.parts, self.registry)

    def work(self):
        """Evaluate and send; return the notices that were sent, by the address of their receiver."""
        self.runner.run_due()
        self.outbox.send_due()
        return [(target.address, notice) for target, notice in self._recorder.take()]


def add_channel(browser, kind="slack", address=WEBHOOK, name="Team chat"):
    return browser.send("/alerts/channels", {"kind": kind, "name": name, "address": address})


def add_rule(browser, app, kind, **fields):
    reply = browser.send(f"/alerts/rules/{kind}", {"app": app["app_id"], "cooldown": "24", **fields})
    assert "The rule is added" in reply.text, reply.text
    return reply


def subscribe(browser, digest="never", alerts="yes"):
    assert "Saved." in browser.send("/alerts/wishes", {"digest": digest, "alerts": alerts}).text


def text_of(reply):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2]))
