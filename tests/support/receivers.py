"""Receivers of messages on loopback: an HTTP server that answers as a test wants, and a certificate for one."""

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Received(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[socket.socket, threading.Event], None]
"""Writes a response. The event is set when the test is over."""


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    head = "\r\n".join([f"HTTP/1.1 {code} Text", f"Content-Length: {len(body)}", *headers, "", ""])
    return lambda client, _over: client.sendall(head.encode() + body)


def silence(_client: socket.socket, over: threading.Event) -> None:
    over.wait()


def endless(start: bytes, repeated: bytes, pause_s: float = 0.0) -> Answer:
    def answer(client: socket.socket, over: threading.Event) -> None:
        client.sendall(start)
        while not over.wait(pause_s):
            client.sendall(repeated)

    return answer


class Receiver:
    """Records requests and answers each of them. Use as a context manager."""

    def __init__(self, answer: Answer | None = None, tls: ssl.SSLContext | None = None, *, reads: bool = True) -> None:
        self.answer = answer or status(200)
        self.received: list[Received] = []
        self.connections = 0
        self.names: list[str | None] = []  # that clients asked for in TLS
        self._tls, self._reads = tls, reads
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with suppress(OSError), plain, self._secured(plain) as client:
            if self._reads:
                self.received.append(_read(client))
            self.answer(client, self._over)

    def _secured(self, plain: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(plain, server_side=True) if self._tls else plain


def _read(client: socket.socket) -> Received:
    with client.makefile("rb") as file:
        line = file.readline().decode().strip()
        headers = {}
        while text := file.readline().decode().strip():
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        return Received(line, headers, file.read(int(headers["content-length"])))


class Certificate(NamedTuple):
    """A certificate that signs itself, for a name on loopback."""

    file: Path
    server: ssl.SSLContext


def certificate_for(name: str, folder: Path) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    usage |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.write_bytes(key.private_bytes(*private))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file, key_file)
    return Certificate(file, server)
