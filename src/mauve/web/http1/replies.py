"""Encode replies as HTTP/1.1."""

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from mauve.web.messages import Reply

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({int(HTTPStatus.NO_CONTENT), int(HTTPStatus.NOT_MODIFIED)})
_CLOSING: Final = b"connection: close\r\n"


def date_line(now_s: float) -> bytes:
    """Return the Date header, which is the same for a second."""
    return b"date: %b\r\n" % formatdate(now_s, usegmt=True).encode()


def encode(reply: Reply, date: bytes, *, closes: bool, is_to_head: bool) -> bytes:
    """Return the bytes of a reply. If `closes`, announce that the connection ends after it."""
    cached = _heads.get(id(reply.headers))
    if cached is None or cached[0] is not reply.headers or cached[1] != reply.status:
        cached = _cached_head(reply.status, reply.headers)
    head = cached[2]
    closing = _CLOSING if closes and "connection" not in reply.headers else b""
    if reply.status in _WITHOUT_BODY:
        return b"%b%b%b\r\n" % (head, date, closing)
    body = b"" if is_to_head else reply.body
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (head, date, closing, len(reply.body), body)


# Nearly all replies share one headers object; the rest differ in a number.
_HEADS_MAX: Final = 64
_heads: dict[int, tuple[Mapping[str, str], int, bytes]] = {}


def _cached_head(status: int, headers: Mapping[str, str]) -> tuple[Mapping[str, str], int, bytes]:
    """Encode the head of a reply and cache it by the identity of its headers.

    The cache holds the headers too, so that their id cannot be reused for others.
    """
    if len(_heads) >= _HEADS_MAX:
        _heads.clear()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    cached = _heads[id(headers)] = (headers, status, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))
    return cached
