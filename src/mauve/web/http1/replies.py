"""A reply as HTTP/1.1 writes it."""

from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from mauve.web.messages import Reply

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSING: Final = b"connection: close\r\n"


def date_line(now_s: float) -> bytes:
    """Return the header that every reply carries; it is the same for a second."""
    return b"date: %b\r\n" % formatdate(now_s, usegmt=True).encode()


def encode(reply: Reply, date: bytes, *, closes: bool, is_to_head: bool) -> bytes:
    """Return the bytes of a reply, and say if the connection ends behind it."""
    head = _head(reply.status, tuple(reply.headers.items()))
    closing = _CLOSING if closes and "connection" not in reply.headers else b""
    if reply.status == HTTPStatus.NO_CONTENT:
        return b"%b%b%b\r\n" % (head, date, closing)
    body = b"" if is_to_head else reply.body
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (head, date, closing, len(reply.body), body)


# Nearly all replies begin alike, and the few others differ in a number.
@lru_cache(maxsize=256)
def _head(status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
