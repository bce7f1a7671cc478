"""HTTP over one keep-alive connection, with a time limit for each exchange."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from socket import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from mauve_metrics._advice import about_failure
from mauve_metrics._answers import NO_ANSWER, Answer

ANSWER_BYTES_MAX = 64 * 1024 * 1024  # A metric may have 100,000 rows.
GZIP_BYTES_MIN = 1024
_GZIP_LEVEL = 5
_PIECE_BYTES = 64 * 1024
_ENDPOINT = re.compile(r"/v1(/(events|objects|metrics|apps)\b.*)?/*$")  # A proxy's path may hold /v1 elsewhere.
_PLACEHOLDER = re.compile(r"…|\.\.\.|[<>]")
_FAILURES = (OSError, HTTPException, ValueError)  # A host name that cannot be encoded is a ValueError.

# Host name resolution loads these codecs on first use. A fork during that import leaves a child in which it never
# succeeds, so load them now.
for _codec in ("idna", "punycode"):
    codecs.lookup(_codec)


class Origin(NamedTuple):
    is_tls: bool
    host: str
    port: int | None
    prefix: str  # of every path
    url: str  # the whole address, for messages


def origin_from(url: str) -> Origin:
    """Return the parts of a service's address, or raise a ValueError."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a string, not {type(url).__name__}")
    url = url.strip()
    parts = urlsplit(url)
    is_writable = url.isprintable() and " " not in url and parts.path.isascii()
    is_plain = is_writable and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
        raise ValueError("url must be an http or https address such as https://ingest.example.com")
    if _ENDPOINT.search(parts.path):
        raise ValueError("url must end before /v1: the client adds the path of each endpoint")
    return Origin(parts.scheme == "https", parts.hostname, parts.port, parts.path.rstrip("/"), url.rstrip("/"))


def checked_credential(name: str, credential: str) -> str:
    """Return the credential if it fits into a header."""
    if not isinstance(credential, str):
        raise TypeError(f"{name} must be a string, not {type(credential).__name__}")
    credential = credential.strip()
    if not credential:
        raise ValueError(f"{name} is empty: pass the one that the service showed when it was created")
    if _PLACEHOLDER.search(credential):
        raise ValueError(f"{name} is a placeholder: pass the one that the service showed when it was created")
    if not credential.isascii() or not credential.isprintable() or " " in credential:
        raise ValueError(f"{name} must be a credential as the service shows it: ASCII, without spaces")
    return credential


class Connection:
    """A connection that is opened when needed and kept. Used by one thread at a time."""

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        self._origin = origin
        self._headers = dict(headers)
        self._open: HTTPConnection | None = None
        self._tls: ssl.SSLContext | None = None

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        """Return the answer, or one with the status `NO_ANSWER`; never raise because of the network."""
        deadline = time.monotonic() + timeout_s
        was_kept = self._open is not None
        try:
            try:
                return self._exchange(method, path, body, headers, deadline)
            except ConnectionError:
                # The server may close an idle connection at any time, even if it is healthy.
                self.close()
                if not was_kept:
                    raise
                return self._exchange(method, path, body, headers, deadline)
        except _FAILURES as error:
            self.close()
            return Answer(NO_ANSWER, {}, about_failure(error).encode(errors="replace"))
        except BaseException:
            self.close()
            raise

    def post(self, path: str, body: bytes, timeout_s: float, *, does_compress: bool) -> Answer:
        """Send JSON, compressed if it is large enough."""
        headers = {"content-type": "application/json"}
        if does_compress and len(body) >= GZIP_BYTES_MIN:
            body = gzip.compress(body, _GZIP_LEVEL)
            headers["content-encoding"] = "gzip"
        return self.request("POST", path, body, headers, timeout_s)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def forget(self) -> None:
        """In a child after a fork, close the socket's file descriptor without ending the parent's connection."""
        sock = self._open.sock if self._open is not None else None
        if sock is not None:
            with suppress(OSError):  # It is closed already.
                os.close(sock.detach())

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], deadline: float
    ) -> Answer:
        if self._open is None:
            self._open = self._connected(deadline)
        connection = self._open
        # Typed as a class there; any callable that takes a socket works.
        connection.response_class = partial(_response, deadline)  # type: ignore[assignment]
        connection.sock.settimeout(_left_s(deadline))
        with suppress(BrokenPipeError, ConnectionResetError):  # A server may answer before it has read everything.
            connection.request(method, self._origin.prefix + path, body, {**self._headers, **headers})
        response = connection.getresponse()
        if response.status < HTTPStatus.OK:  # The final response would be read as the answer to the next request.
            raise HTTPException(f"only an informational answer: {response.status}")
        content = _content(response)
        if response.length:  # With a limit, `read` does not detect a truncated response.
            raise IncompleteRead(content, response.length)
        if response.will_close or not response.isclosed():
            self.close()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _connected(self, deadline: float) -> HTTPConnection:
        host, port = self._origin.host, self._origin.port
        connection: HTTPConnection
        if self._origin.is_tls:
            self._tls = self._tls or ssl.create_default_context()
            connection = HTTPSConnection(host, port, timeout=_left_s(deadline), context=self._tls)
        else:
            connection = HTTPConnection(host, port, timeout=_left_s(deadline))
        connection.connect()
        return connection


def _content(response: HTTPResponse) -> bytes:
    """Read in pieces: `read` may allocate as many bytes as it is asked for."""
    content = bytearray()
    while len(content) < ANSWER_BYTES_MAX:
        piece = response.read(_PIECE_BYTES)
        if not piece:
            break
        content += piece
    return bytes(content)


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


class _ReadUntil(io.RawIOBase):
    """Read from a socket until a deadline: the socket's own timeout would restart with every byte."""

    def __init__(self, sock: socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until the response is read
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        self._sock.settimeout(_left_s(self._deadline))
        return self._raw.readinto(buffer) or 0

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Act as the socket: a response calls only this method."""
        return io.BufferedReader(self)


def _response(deadline: float, sock: socket, debuglevel: int = 0, method: str | None = None) -> HTTPResponse:
    return HTTPResponse(_ReadUntil(sock, deadline), debuglevel, method)  # type: ignore[arg-type]
