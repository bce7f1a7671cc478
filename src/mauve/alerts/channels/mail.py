"""Send a notice by e-mail: plain text and HTML, over SMTP.

The operator chooses the server, so its address is not checked.
"""

import smtplib
import socket
import ssl
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.headerregistry import Address, BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.policy import SMTP, Policy
from email.utils import parseaddr
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import jinja2

from mauve.alerts.channels import SEND_S_MAX, Notice, SendFailed, Target
from mauve.alerts.channels.connection import Deadline, check_email, connected, resolve
from mauve.alerts.channels.formats import by_app, fitted, one_line
from mauve.core.secret import Secret

_PORTS: Final = {"smtp": 587, "smtps": 465}
_FORMAT: Final = (
    "Write it as smtp://USER:PASSWORD@HOST:587, smtps://USER:PASSWORD@HOST:465 or, locally, smtp://localhost:25"
)
_PERMANENT: Final = 500
_TEXT_CHARACTERS_MAX: Final = 200
# The operator can fix all of these, so the message is retried.
_REASONS: Final[dict[type[Exception], str]] = {
    smtplib.SMTPAuthenticationError: "The mail server refused user name and password ({code}). Correct MAUVE_SMTP_URL.",
    smtplib.SMTPSenderRefused: "The mail server refused the sender's address ({code}). Correct MAUVE_MAIL_FROM.",
    smtplib.SMTPNotSupportedError: (
        "The mail server offers no encryption, or no sign-in. Correct MAUVE_SMTP_URL, or add ?tls=none to it "
        "if you trust the network."
    ),
    ssl.SSLCertVerificationError: (
        "The mail server's certificate is not valid for its name. Renew it, or correct MAUVE_SMTP_URL."
    ),
}


class MailServer(NamedTuple):
    host: str
    port: int
    tls: str  # "implicit", "starttls" or "none"
    user: str | None
    password: Secret | None


def mail_server_from(url: Secret) -> MailServer:
    """Return what the URL of the mail server says. Raise ValueError, without the URL, if it is not valid."""
    try:
        parts = urlsplit(url.reveal())
        host, port, asked = parts.hostname, parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(f"The URL of the mail server is not valid. {_FORMAT}.") from None
    if parts.scheme not in _PORTS or not host or parts.path not in {"", "/"} or parts.fragment:
        raise ValueError(f"The URL of the mail server is not valid. {_FORMAT}.")
    # Traffic on loopback does not leave the machine, and local relays rarely have a valid certificate.
    default = "none" if _is_loopback(host) and parts.username is None else "starttls"
    tls = asked.pop("tls", default) if parts.scheme == "smtp" else "implicit"
    if asked or tls not in {"starttls", "none", "implicit"}:
        raise ValueError(f"{_FORMAT}, and add ?tls=none to an smtp URL only if the server offers no encryption.")
    if not unquote(parts.netloc).isascii():
        raise ValueError("User name and password of the mail server must be ASCII. Choose others.")
    user = unquote(parts.username) if parts.username else None
    password = Secret(unquote(parts.password)) if parts.password else None
    if (user is None) != (password is None):
        raise ValueError("The URL of the mail server has a user name or a password, but not both. Add the other.")
    return MailServer(host, port or _PORTS[parts.scheme], tls, user, password)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _mail_from(text: str) -> Address:
    name, address = parseaddr(text)
    try:
        check_email(address if text.isprintable() else "")
    except ValueError:
        raise ValueError(
            "Set MAUVE_MAIL_FROM to the address that messages come from, such as Mauve <alerts@example.com>."
        ) from None
    return Address(name or "Mauve", addr_spec=address)


class SmtpSender:
    def __init__(self, url: Secret, mail_from: str | None, *, send_s_max: float = SEND_S_MAX) -> None:
        """Raise ValueError, with a sentence for the operator, if the URL or the sender's address is not valid.

        Without a sender's address, messages come from the user of the mail server, if that is an address.
        """
        self._server = mail_server_from(url)
        self._mail_from = _mail_from(mail_from if mail_from is not None else (self._server.user or ""))
        self._send_s_max = send_s_max
        self._tls = ssl.create_default_context()

    def send(self, target: Target, notice: Notice) -> None:
        deadline = Deadline(self._send_s_max)
        try:
            check_email(target.address)
        except ValueError as error:
            raise SendFailed(str(error), retry=False) from None
        message = message_of(notice, self._mail_from, Address(addr_spec=target.address)).as_bytes()
        server = self._server
        try:
            addresses, tls = resolve(server.host, deadline), self._tls if server.tls == "implicit" else None
            with connected(addresses, server.port, deadline, server.host, tls=tls) as connection:
                self._send(_Session(connection, server, self._mail_from.domain), target, message)
        except (OSError, ValueError) as error:  # errors of smtplib, sockets and TLS; replies that cannot be decoded
            raise _failure_from(error, deadline) from error

    def _send(self, session: smtplib.SMTP, target: Target, message: bytes) -> None:
        with closing(session):
            if self._server.tls == "starttls":
                session.starttls(context=self._tls)
            if self._server.user is not None and self._server.password is not None:
                session.login(self._server.user, self._server.password.reveal())
            session.sendmail(self._mail_from.addr_spec, [target.address], message)
            with suppress(OSError):  # The message is accepted, whatever follows.
                session.quit()


class _Session(smtplib.SMTP):
    """SMTP over a connection that is already open."""

    def __init__(self, connection: socket.socket, server: MailServer, own_name: str) -> None:
        self._connection = connection
        # Without a name of our own, the library would look one up in the DNS, which may take long.
        super().__init__(server.host, server.port, local_hostname=own_name)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002 - called by the library
        return self._connection


def _failure_from(error: Exception, deadline: Deadline) -> SendFailed:
    if deadline.is_over or isinstance(error, TimeoutError):
        return SendFailed("The mail server did not answer in time. The message is sent again later.", retry=True)
    match error:
        case smtplib.SMTPRecipientsRefused():
            code = max(code for code, _ in error.recipients.values())
            return SendFailed(f"The mail server refused the e-mail address ({code}).", retry=code < _PERMANENT)
        case smtplib.SMTPDataError(smtp_code=code):
            return SendFailed(f"The mail server refused the message ({code}).", retry=code < _PERMANENT)
    default = "The mail server could not be reached. Check that it is running, and MAUVE_SMTP_URL."
    reason = _REASONS.get(type(error), default).format(code=getattr(error, "smtp_code", None))
    return SendFailed(reason, retry=True)


def message_of(notice: Notice, sender: Address, receiver: Address) -> EmailMessage:
    """Return the e-mail, with the headers that mail programs expect of automatic messages."""
    message = EmailMessage(_policy())
    message["Message-ID"] = f"<{notice.id}@{sender.domain}>"
    message["Date"] = _moment(notice)
    message["From"] = sender
    message["To"] = receiver
    message["Subject"] = _short(notice.title)
    message["Auto-Submitted"] = "auto-generated"
    if notice.unsubscribe is not None:
        message["List-Unsubscribe"] = f"<{notice.unsubscribe}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(_rendered("mail.txt", notice))
    message.add_alternative(_rendered("mail.html", notice), subtype="html")
    return message


def _rendered(template: str, notice: Notice) -> str:
    sent_at = f"{_moment(notice):%-d %B %Y at %H:%M} UTC"
    return _templates().get_template(template).render(notice=notice, apps=by_app(notice.facts), sent_at=sent_at)


def _moment(notice: Notice) -> datetime:
    return datetime.fromtimestamp(notice.at // 1000, UTC)


def _short(text: str) -> str:
    return fitted(text, _TEXT_CHARACTERS_MAX)


class _UnfoldedHeader(UnstructuredHeader, BaseHeader):
    """A header on one line. The library folds a long address by encoding it, and mail programs then ignore it."""

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {self}{policy.linesep}"


@cache
def _policy() -> Policy:
    headers = HeaderRegistry()
    headers.map_to_type("list-unsubscribe", _UnfoldedHeader)
    return SMTP.clone(cte_type="7bit", header_factory=headers)


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"one_line": one_line, "short": _short}
    return templates
