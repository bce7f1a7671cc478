"""Notices on their way to real servers: SMTP with and without TLS, webhooks, and receivers that mean harm."""

import contextlib
import json
import socket
import ssl
from email import message_from_bytes, policy

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from standardwebhooks import Webhook, WebhookVerificationError

from mauve.alerts.channels import Fact, Notice, SendFailed, Target
from mauve.alerts.channels.mail import SmtpSender, mail_server_from
from mauve.alerts.channels.webhook import WebhookSender, new_secret
from mauve.core.secret import Secret
from support.receivers import Receiver, certificate_for, endless, silence, status
from support.service import PATIENCE_S, two_free_ports

pytestmark = pytest.mark.embedded

PASSWORD = "p@ss/word"
NOTICE = Notice(
    id="ntc_7Qm",
    kind="no_events",
    title="Gänseblümchen: no events for 6 hours",
    reason="The last event arrived at 04:12 UTC.",
    facts=[Fact("Gänseblümchen", "Last event", "04:12 UTC", None, None)],
    link="https://metrics.example.com/",
    unsubscribe="https://metrics.example.com/unsubscribe/" + "x" * 60,
    sent_for="Acme",
    at=1_789_000_000_000,
)
TO = Target("email", "you@example.org")


class Mailbox:
    """What the SMTP server accepted, and how it answers."""

    def __init__(self) -> None:
        self.envelopes = []
        self.users = []
        self.recipient_reply = self.data_reply = None

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802 - aiosmtpd's name
        if self.recipient_reply is not None:
            return self.recipient_reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        if self.data_reply is not None:
            return self.data_reply
        self.envelopes.append(envelope)
        self.users.append(session.auth_data)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, login):
        is_right = (login.login, login.password) == (b"mauve@example.com", PASSWORD.encode())
        return AuthResult(success=is_right, handled=False, auth_data=login.login.decode() if is_right else None)


@contextlib.contextmanager
def mail_server(mailbox, **options):
    controller = Controller(mailbox, hostname="127.0.0.1", port=two_free_ports(), ready_timeout=PATIENCE_S, **options)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@pytest.fixture
def mailbox():
    return Mailbox()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return certificate_for("localhost", tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def _trusted(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))


def send_mail(url, target=TO, mail_from="Mauve <alerts@example.com>"):
    SmtpSender(Secret(url), mail_from).send(target, NOTICE)


def failure_of(send, *arguments):
    with pytest.raises(SendFailed) as failed:
        send(*arguments)
    assert PASSWORD not in repr(failed.value) + repr(failed.value.__cause__)
    return failed.value


def test_an_email_arrives_without_encryption_if_the_operator_says_so(mailbox):
    with mail_server(mailbox) as port:
        send_mail(f"smtp://127.0.0.1:{port}?tls=none")
        send_mail(f"smtp://127.0.0.1:{port}?tls=none")
    first, second = mailbox.envelopes
    assert (first.mail_from, first.rcpt_tos) == ("alerts@example.com", ["you@example.org"])
    mails = [message_from_bytes(each.content, policy=policy.default) for each in (first, second)]
    assert [mail["message-id"] for mail in mails] == ["<ntc_7Qm@example.com>"] * 2
    assert mails[0]["subject"] == NOTICE.title
    assert mails[0]["list-unsubscribe"] == f"<{NOTICE.unsubscribe}>"
    assert "Last event: 04:12 UTC" in mails[0].get_body(("plain",)).get_content()
    assert "Gänseblümchen" in mails[0].get_body(("html",)).get_content()


@pytest.mark.usefixtures("_trusted")
def test_an_email_arrives_over_starttls_and_with_a_password(mailbox, certificate):
    options = {"tls_context": certificate.server, "require_starttls": True, "auth_required": True}
    with mail_server(mailbox, authenticator=mailbox.authenticate, **options) as port:
        send_mail(f"smtp://mauve%40example.com:p%40ss%2Fword@localhost:{port}?tls=starttls", mail_from=None)
    assert mailbox.users == ["mauve@example.com"]
    assert mailbox.envelopes[0].mail_from == "mauve@example.com"


@pytest.mark.usefixtures("_trusted")
def test_an_email_arrives_over_tls_from_the_first_byte(mailbox, certificate):
    with mail_server(mailbox, ssl_context=certificate.server, server_hostname="localhost") as port:
        send_mail(f"smtps://localhost:{port}")
    assert len(mailbox.envelopes) == 1


def test_a_mail_server_whose_certificate_is_not_trusted_gets_no_password(mailbox, certificate):
    options = {"tls_context": certificate.server, "require_starttls": True, "auth_required": True}
    with mail_server(mailbox, authenticator=mailbox.authenticate, **options) as port:
        failed = failure_of(send_mail, f"smtp://mauve%40example.com:p%40ss%2Fword@localhost:{port}")
    assert failed.retry
    assert "certificate" in failed.reason
    assert mailbox.envelopes == []


def test_a_relay_on_loopback_needs_no_encryption(mailbox, certificate):
    with mail_server(mailbox) as port:
        send_mail(f"smtp://127.0.0.1:{port}")
        send_mail(f"smtp://localhost:{port}")
    with mail_server(mailbox, tls_context=certificate.server) as port:
        send_mail(f"smtp://127.0.0.1:{port}")  # Its certificate is not trusted.
    assert len(mailbox.envelopes) == 3


def test_a_mail_server_without_encryption_gets_no_password_unless_the_operator_says_so(mailbox):
    with mail_server(mailbox) as port:
        failed = failure_of(send_mail, f"smtp://mauve%40example.com:p%40ss%2Fword@127.0.0.1:{port}")
    assert failed.retry
    assert "?tls=none" in failed.reason
    assert mailbox.envelopes == []


def test_only_loopback_is_used_without_encryption_by_default():
    def tls_of(host):
        return mail_server_from(Secret(f"smtp://{host}:25")).tls

    assert {tls_of(host) for host in ("localhost", "127.0.0.1", "127.8.8.8", "[::1]")} == {"none"}
    remote = ("10.0.0.1", "192.168.1.2", "[fd00::1]", "example.com", "localhost.example.com", "0.0.0.0")
    assert {tls_of(host) for host in remote} == {"starttls"}


@pytest.mark.usefixtures("_trusted")
def test_a_wrong_password_is_retried_because_the_operator_can_correct_it(mailbox, certificate):
    options = {"tls_context": certificate.server, "require_starttls": True, "auth_required": True}
    with mail_server(mailbox, authenticator=mailbox.authenticate, **options) as port:
        failed = failure_of(send_mail, f"smtp://mauve%40example.com:wrong@localhost:{port}")
    assert failed.retry
    assert "Correct MAUVE_SMTP_URL" in failed.reason


def test_an_email_that_was_refused_for_good_is_not_sent_again(mailbox):
    with mail_server(mailbox) as port:
        url = f"smtp://127.0.0.1:{port}?tls=none"
        for reply, retry in (("550 No such user", False), ("450 Mailbox busy", True)):
            mailbox.recipient_reply = reply
            assert (failure_of(send_mail, url).retry, reply) == (retry, reply)
        mailbox.recipient_reply = None
        for reply, retry in (("554 Rejected", False), ("451 Try again later", True)):
            mailbox.data_reply = reply
            assert (failure_of(send_mail, url).retry, reply) == (retry, reply)
    assert failure_of(send_mail, url).retry  # The server is down.


def test_an_address_that_is_not_one_is_refused_before_the_mail_server_is_asked(mailbox):
    with mail_server(mailbox) as port:
        target = Target("email", "you@example.org>\r\nRCPT TO:<other@example.org")
        failed = failure_of(send_mail, f"smtp://127.0.0.1:{port}?tls=none", target)
    assert not failed.retry
    assert mailbox.envelopes == []


def test_a_mail_server_that_sends_a_byte_at_a_time_is_left_at_the_deadline():
    for answer in (endless(b"220", b"-", 0.01), silence):
        with Receiver(answer, reads=False) as slow:
            url = Secret(f"smtp://127.0.0.1:{slow.port}?tls=none")
            sender = SmtpSender(url, "a@example.com", send_s_max=0.5)
            failed = failure_of(sender.send, TO, NOTICE)
        assert failed.retry
        assert "in time" in failed.reason


def test_a_url_of_a_mail_server_that_is_not_valid_is_refused_without_showing_it():
    refused = (
        *("http://u:s3cret@host", "smtp://", "smtp://u:s3cret@host:x", "smtp://u:s3cret@host/path", "s3cret"),
        *("smtp://u:s3cret@host?tls=maybe", "smtp://u:s3cret@host?starttls=1", "smtps://u:s3cret@host?tls=none"),
        *("smtp://s3cret@host", "smtp://u:s3cr%C3%A9t@host", "smtp://u:s3cret@host?tls", "smtp://u:s3cret@[::1"),
    )
    for url in refused:
        with pytest.raises(ValueError, match=r"mail server|smtp://") as error:
            SmtpSender(Secret(url), "a@example.com")
        assert "s3cr" not in str(error.value), url
    for mail_from in (None, "", "alerts", "a@example.com\r\nBcc: b@example.com, c@example.com"):
        with pytest.raises(ValueError, match="MAUVE_MAIL_FROM"):
            SmtpSender(Secret("smtp://u:p@host"), mail_from)


def hook(receiver, kind="webhook", secret=None, scheme="http", host="127.0.0.1"):
    secret = secret or (new_secret() if kind == "webhook" else None)
    return Target(kind, f"{scheme}://{host}:{receiver.port}/hook?wait=true", secret)


def send_hook(target, **options):
    WebhookSender(**{"allow_private": True, "send_s_max": PATIENCE_S, **options}).send(target, NOTICE)


def test_a_webhook_receives_json_that_verifies_by_standard_webhooks():
    secret = new_secret()
    sender = WebhookSender(allow_private=True)
    with Receiver() as receiver:
        sender.send(hook(receiver, secret=secret), NOTICE)
        sender.send(hook(receiver, secret=secret), NOTICE)
    first, second = receiver.received
    assert first.line == "POST /hook?wait=true HTTP/1.1"
    assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == NOTICE.id
    assert first.body == second.body
    assert Webhook(secret).verify(first.body, first.headers) == json.loads(first.body)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(first.body, first.headers)


def test_chats_receive_their_own_format_without_a_signature():
    sender = WebhookSender(allow_private=True)
    for kind, key in (("slack", "blocks"), ("discord", "embeds")):
        with Receiver(status(204)) as receiver:
            sender.send(hook(receiver, kind), NOTICE)
        (request,) = receiver.received
        assert key in json.loads(request.body)
        assert "webhook-signature" not in request.headers


def test_a_webhook_without_a_secret_is_not_sent_unsigned():
    with Receiver() as receiver:
        failed = failure_of(send_hook, Target("webhook", hook(receiver).address))
    assert (failed.retry, receiver.connections) == (False, 0)


def test_a_status_decides_whether_a_message_is_sent_again():
    expected = {400: False, 401: False, 403: False, 404: False, 408: True, 410: False, 413: False, 425: True}
    expected |= {429: True, 500: True, 502: True, 503: True, 504: True, 301: False, 304: False, 307: False}
    outcomes = {}
    with Receiver() as receiver:
        for code in expected:
            receiver.answer = status(code)
            failed = failure_of(send_hook, hook(receiver))
            outcomes[code] = failed.retry
            assert f"({code})" in failed.reason
        for code in (200, 201, 202, 204):
            receiver.answer = status(code)
            send_hook(hook(receiver))
    assert outcomes == expected


def test_a_redirect_is_not_followed():
    with Receiver() as inner, Receiver(status(307, f"Location: http://127.0.0.1:{inner.port}/")) as receiver:
        failed = failure_of(send_hook, hook(receiver))
    assert not failed.retry
    assert "redirects" in failed.reason
    assert inner.connections == 0


def test_a_receiver_that_takes_forever_is_left_at_the_deadline():
    for scheme, answer in (("http", silence), ("https", silence), ("http", endless(b"", b"H", 0.01))):
        with Receiver(answer, reads=scheme == "http") as receiver:
            failed = failure_of(lambda to: send_hook(to, send_s_max=0.5), hook(receiver, scheme=scheme))
        assert failed.retry
        assert "in time" in failed.reason
    with Receiver(endless(b"HTTP/1.1 503 Busy\r\nX-Slow: ", b"x", 0.01)) as receiver:
        assert failure_of(lambda to: send_hook(to, send_s_max=0.5), hook(receiver)).retry


def test_only_the_first_bytes_of_a_response_are_read():
    accepted = b"HTTP/1.1 200 OK\r\n"
    header = b"X: " + b"x" * 60_000 + b"\r\n"
    for start, repeated in ((accepted + b"\r\n", b"x" * 65536), (accepted, header), (accepted, b"x" * 4096)):
        with Receiver(endless(start, repeated)) as receiver:
            send_hook(hook(receiver))
    for answer in (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), endless(b"", b"?" * 4096), status(7)):
        with Receiver(answer) as receiver:
            failed = failure_of(send_hook, hook(receiver))
        assert failed.retry
        assert "HTTP" in failed.reason


def test_a_receiver_that_is_down_is_tried_again():
    with Receiver() as receiver:
        pass
    failed = failure_of(send_hook, hook(receiver))
    assert failed.retry
    assert "could not be reached" in failed.reason


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        send_hook(hook(receiver))
    assert (proxy.connections, len(receiver.received)) == (0, 1)


class Resolver:
    """Answers each question with the next list of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), []

    def __call__(self, host, deadline):
        self.asked.append(host)
        return self.answers.pop(0)


def test_a_name_that_leads_into_a_private_network_is_refused_before_connecting(certificate):
    with Receiver(tls=certificate.server) as receiver:
        for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"]):
            sender = WebhookSender(allow_private=False, resolve=Resolver(addresses))
            failed = failure_of(sender.send, hook(receiver, scheme="https", host="a.example"), NOTICE)
            assert not failed.retry
            assert "private network" in failed.reason
        literal = hook(receiver, scheme="https")
        assert not failure_of(lambda to: send_hook(to, allow_private=False), literal).retry
    assert receiver.connections == 0


@pytest.mark.usefixtures("_trusted")
def test_a_name_is_resolved_once_and_tls_is_checked_for_the_name(certificate):
    resolver = Resolver(["127.0.0.1"], ["10.0.0.1"])
    with Receiver(tls=certificate.server) as receiver:
        send_hook(hook(receiver, scheme="https", host="localhost"), resolve=resolver)
        assert resolver.asked == receiver.names == ["localhost"]
        assert receiver.received[0].headers["host"] == f"localhost:{receiver.port}"
        other = hook(receiver, scheme="https", host="other.example")
        failed = failure_of(lambda to: send_hook(to, resolve=Resolver(["127.0.0.1"])), other)
    assert failed.retry
    assert "certificate" in failed.reason
    assert len(receiver.received) == 1


def test_a_receiver_is_reached_at_the_second_address_of_its_name():
    with Receiver() as receiver:
        send_hook(hook(receiver, host="a.example"), resolve=Resolver(["::1", "127.0.0.1"]))
    assert len(receiver.received) == 1


def test_a_name_that_does_not_exist_is_reported():
    def not_found(host, deadline):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    sender = WebhookSender(allow_private=False, resolve=not_found)
    failed = failure_of(sender.send, Target("slack", "https://nothing.example/hook"), NOTICE)
    assert failed.retry
    assert "not found" in failed.reason
    no_name = Target("slack", f"https://{'a' * 64}.example/hook")  # too long for the system's resolver to ask
    assert failure_of(send_hook, no_name).retry


def test_the_certificates_of_the_system_are_trusted_and_others_are_not(certificate):
    with Receiver(tls=certificate.server) as receiver:
        failed = failure_of(send_hook, hook(receiver, scheme="https", host="localhost"))
    assert isinstance(failed.__cause__, ssl.SSLCertVerificationError)
    assert receiver.received == []
