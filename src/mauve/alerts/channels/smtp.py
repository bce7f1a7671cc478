"""Send a notice by SMTP. The operator chooses the server, so its address is not checked."""

import smtplib
import socket
import ssl
from contextlib import ExitStack, suppress
from email.headerregistry import Address
from email.utils import parseaddr
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from mauve.alerts.channels.addresses import check_email
from mauve.alerts.channels.connection import Deadline, connect, resolve
from mauve.alerts.channels.mail import message_of
from mauve.alerts.channels.sender import SEND_S_MAX, SendFailed, Target
from mauve.alerts.notice import Notice
from mauve.core.secret import Secret

_PORTS: Final = {"smtp": 587, "smtps": 465}
_FORMAT: Final = (
    "Write it as smtp://USER:PASSWORD@HOST:587, smtps://USER:PASSWORD@HOST:465 or, locally, smtp://localhost:25"
)
_PERMANENT: Final = 500


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


def mail_sender_from(mail_from: str | None, server: MailServer) -> Address:
    """Return the address that messages come from. If none is set, use the user's name if it is one."""
    text = mail_from if mail_from is not None else (server.user or "")
    name, address = parseaddr(text)
    try:
        check_email(address if text.isprintable() else "")
    except ValueError:
        raise ValueError(
            "Set MAUVE_MAIL_FROM to the address that messages come from, such as Mauve <alerts@example.com>."
        ) from None
    return Address(name or "Mauve", addr_spec=address)


class SmtpSender:
    def __init__(self, server: MailServer, mail_from: Address, *, send_s_max: float = SEND_S_MAX) -> None:
        self._server = server
        self._mail_from = mail_from
        self._send_s_max = send_s_max
        self._tls = ssl.create_default_context()

    def send(self, target: Target, notice: Notice) -> None:
        deadline = Deadline(self._send_s_max)
        try:
            check_email(target.address)
        except ValueError as error:
            raise SendFailed(str(error), retry=False) from None
        receiver = Address(addr_spec=target.address)
        message = message_of(notice, self._mail_from, receiver).as_bytes()
        try:
            with ExitStack() as stack:
                session = self._signed_in(deadline, stack)
                session.sendmail(self._mail_from.addr_spec, [target.address], message)
                with suppress(OSError):  # The message is accepted, whatever follows.
                    session.quit()
        except (OSError, ValueError) as error:  # errors of smtplib, sockets and TLS; replies that cannot be decoded
            raise _failure_from(error, deadline) from error

    def _signed_in(self, deadline: Deadline, stack: ExitStack) -> smtplib.SMTP:
        """Return a session that may send. It is closed with the stack."""
        server = self._server
        plain = connect(resolve(server.host, server.port, deadline), deadline)
        stack.callback(plain.close)
        stack.enter_context(deadline.ending(plain))
        connection = self._tls.wrap_socket(plain, server_hostname=server.host) if server.tls == "implicit" else plain
        session = _Session(connection, server, self._mail_from.domain)
        stack.callback(session.close)
        if server.tls == "starttls":
            session.starttls(context=self._tls)
        if server.user is not None and server.password is not None:
            session.login(server.user, server.password.reveal())
        return session


class _Session(smtplib.SMTP):
    """SMTP over a connection that is already open."""

    def __init__(self, connection: socket.socket, server: MailServer, own_name: str) -> None:
        self._connection = connection
        # With a name of our own the library does not ask the DNS for one, which may take long.
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
        case smtplib.SMTPAuthenticationError():
            reason = f"The mail server refused user name and password ({error.smtp_code}). Correct MAUVE_SMTP_URL."
        case smtplib.SMTPSenderRefused():
            reason = f"The mail server refused the sender's address ({error.smtp_code}). Correct MAUVE_MAIL_FROM."
        case smtplib.SMTPDataError():
            code = error.smtp_code
            return SendFailed(f"The mail server refused the message ({code}).", retry=code < _PERMANENT)
        case smtplib.SMTPNotSupportedError():
            reason = (
                "The mail server offers no encryption, or no sign-in. Correct MAUVE_SMTP_URL, or add ?tls=none to it "
                "if you trust the network."
            )
        case ssl.SSLCertVerificationError():
            reason = "The mail server's certificate is not valid for its name. Renew it, or correct MAUVE_SMTP_URL."
        case _:
            reason = "The mail server could not be reached. Check that it is running, and MAUVE_SMTP_URL."
    # The operator can mend all of these, and members wait for their messages.
    return SendFailed(reason, retry=True)
