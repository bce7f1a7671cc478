"""A reply as HTTP/1.1 writes it."""

from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from mauve.web.messages import Reply

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_CONTENT: Final = int(HTTPStatus.NO_CONTENT)
_CLOSING: Final = b"connection: close\r\n"


def date_line(now_s: float) -> bytes:
    """Return the header that every reply carries; it is the same for a second."""
    return b"date: %b\r\n" % formatdate(now_s, usegmt=True).encode()


def encode(reply: Reply, date: bytes, *, closes: bool, is_to_head: bool) -> bytes:
    """Return the bytes of a reply, and say if the connection ends behind it."""
    known = _heads.get(id(reply.headers))
    if known is None or known[0] is not reply.headers or known[1] != reply.status:
        known = _known_head(reply.status, reply.headers)
    head = known[2]
    closing = _CLOSING if closes and "connection" not in reply.headers else b""
    if reply.status == _NO_CONTENT:
        return b"%b%b%b\r\n" % (head, date, closing)
    body = b"" if is_to_head else reply.body
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (head, date, closing, len(reply.body), body)


# Nearly all replies have the very same headers, and the few others differ in a number.
_HEADS_MAX: Final = 64
_heads: dict[int, tuple[Mapping[str, str], int, bytes]] = {}


def _known_head(status: int, headers: Mapping[str, str]) -> tuple[Mapping[str, str], int, bytes]:
    """Write the head of a reply and keep it for the next one with the same headers.

    The headers are kept as well, so no others can ever be found under their id.
    """
    if len(_heads) >= _HEADS_MAX:
        _heads.clear()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    known = _heads[id(headers)] = (headers, status, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))
    return known
