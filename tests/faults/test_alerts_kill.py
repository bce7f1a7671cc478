"""A service with a real SMTP server and a real webhook receiver, killed between sending and noting it."""

import os
import re
import signal
import sqlite3
from contextlib import closing, contextmanager
from email import message_from_bytes, policy

import httpx2 as httpx
import pytest
from aiosmtpd.controller import Controller
from standardwebhooks import Webhook

from support.browser import PASSWORD, Browser, shown
from support.receivers import Receiver, silence, status
from support.service import PATIENCE_S, eventually, running, start, two_free_ports

pytestmark = pytest.mark.embedded  # It looks into the catalog's file.


class Mailbox:
    def __init__(self):
        self.messages = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        self.messages.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"


@contextmanager
def mail_server():
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=two_free_ports(), ready_timeout=PATIENCE_S)
    controller.start()
    try:
        yield controller.port, mailbox
    finally:
        controller.stop()


@contextmanager
def owner_of(service):
    with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        browser = Browser(client)
        form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
        browser.send(service.setup_link.removeprefix(service.url), form)
        yield browser


@contextmanager
def signed_in(service):
    with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        browser = Browser(client)
        browser.sign_in("ann@example.com")
        yield browser


def make_due(data):
    """Let the time of every claim and of every wait pass."""
    with closing(sqlite3.connect(data / "catalog.db", timeout=PATIENCE_S)) as catalog, catalog:
        catalog.execute("UPDATE alert_messages SET claimed_until = 0, due_at = 0")


def test_a_core_killed_while_it_sends_sends_again_with_the_same_id(tmp_path):
    allowed = {"MAUVE_ALERTS_ALLOW_PRIVATE": "1"}
    with (
        Receiver(silence) as receiver,
        running(tmp_path / "data", "--workers", "1", environment=allowed) as service,
        owner_of(service) as browser,
    ):
        address = f"http://127.0.0.1:{receiver.port}/hook"
        created = browser.send("/alerts/channels", {"kind": "webhook", "name": "Own", "address": address})
        secret = shown(created, "signing-secret")
        channel_id = re.search(r"/alerts/channels/(chan_\w+)/test", browser.open("/alerts").text)[1]
        assert "done=test-queued" in str(browser.send(f"/alerts/channels/{channel_id}/test").url)
        eventually(lambda: receiver.received)
        os.kill(service.child_pids()["core"], signal.SIGKILL)
        receiver.answer = status(200)

        def is_sent_again():
            make_due(service.data)
            return len(receiver.received) > 1

        eventually(is_sent_again)
        assert len({each.headers["webhook-id"] for each in receiver.received}) == 1
        for each in receiver.received:
            Webhook(secret).verify(each.body, each.headers)
        eventually(lambda: "Sent</span>" in page_or_empty(browser))


def page_or_empty(browser):
    """Return the page; nothing while the core starts again."""
    try:
        return browser.open("/alerts").text
    except httpx.TransportError:
        return ""


def test_an_email_is_sent_to_a_member_and_its_link_ends_them(tmp_path):
    with mail_server() as (port, mailbox):
        mail = {"MAUVE_SMTP_URL": f"smtp://127.0.0.1:{port}?tls=none", "MAUVE_MAIL_FROM": "Mauve <m@example.com>"}
        with running(tmp_path / "data", "--workers", "1", environment=mail) as service, owner_of(service) as browser:
            browser.send("/alerts/wishes", {"digest": "weekly", "alerts": "yes"})
            assert "done=test-queued" in str(browser.send("/alerts/wishes/test").url)
            eventually(lambda: mailbox.messages)
            receivers, message = mailbox.messages[0]
            assert receivers == ["ann@example.com"]
            assert message["subject"] == "A test from Mauve"
            assert message["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
            link = message["list-unsubscribe"].strip("<>")
            assert link.startswith(service.url)
            clicked = httpx.post(link, timeout=PATIENCE_S, data={"List-Unsubscribe": "One-Click"})
            assert clicked.status_code == 200
            page = browser.open("/alerts").text
            assert 'name="alerts" value="yes" checked' not in page
            assert '<option value="weekly" selected>' in page


def test_a_copy_with_alerts_turned_off_sends_nothing(tmp_path):
    """A message that waits in the copy is sent by the original; the copy sends it only if alerts are turned on."""
    private = {"MAUVE_ALERTS_ALLOW_PRIVATE": "1"}
    data, off = tmp_path / "data", private | {"MAUVE_ALERTS": "0"}
    with Receiver(status(500)) as receiver:
        with running(data, "--workers", "1", environment=private) as service, owner_of(service) as browser:
            address = f"http://127.0.0.1:{receiver.port}/hook"
            browser.send("/alerts/channels", {"kind": "slack", "name": "Chat", "address": address})
            test_path = re.search(r"/alerts/channels/chan_\w+/test", browser.open("/alerts").text)[0]
            browser.send(test_path)
            eventually(lambda: receiver.received)
            eventually(lambda: "badge warn" in browser.open("/alerts").text)
        receiver.answer = status(200)
        tried = len(receiver.received)
        make_due(data)
        with running(data, "--workers", "1", environment=off) as service, signed_in(service) as browser:
            assert "MAUVE_ALERTS" in browser.open("/alerts").text
            refused = browser.send(test_path)
            assert (refused.status_code, "this machine sends nothing" in refused.text.lower()) == (400, True)
        assert len(receiver.received) == tried
        with running(data, "--workers", "1", environment=private):
            eventually(lambda: len(receiver.received) > tried)


@pytest.mark.parametrize(
    "wrong", [{"MAUVE_SMTP_URL": "http://canary@x"}, {"MAUVE_SMTP_URL": "smtp://x", "MAUVE_MAIL_FROM": "no address"}]
)
def test_a_service_with_wrong_mail_settings_does_not_start_and_says_what_to_set(tmp_path, wrong):
    with pytest.raises(AssertionError, match=r"the service did not start: .*MAUVE_") as refused:
        start(tmp_path / "data", "--workers", "1", environment=wrong)
    assert "canary" not in str(refused.value)
