"""Rules for a request's head, which prevent request smuggling.

Proxies and servers that disagree on where a request ends can be made to read one request as two. So both ports refuse
every head that could be read in two ways.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 100
LENGTH_DIGITS_MAX: Final = 19
_HOST_BYTES_MAX: Final = 300
_HOST: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?", re.ASCII
)


class Flaw(NamedTuple):
    """Why a request is refused because of its head."""

    status: HTTPStatus
    text: str


def _bad(text: str) -> Flaw:
    return Flaw(HTTPStatus.BAD_REQUEST, text)


NO_HTTP: Final = _bad("this is not a valid HTTP/1.1 request: send plain HTTP/1.1, TLS ends at a proxy in front")
TOO_LARGE: Final = Flaw(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"send at most {HEADERS_MAX} headers, and {HEAD_BYTES_MAX} bytes of them with the address",
)
HOST_MISSING: Final = _bad("HTTP/1.1 needs a Host header: send one")
HOST_REPEATED: Final = _bad("there is more than one Host header: send one")
HOST_INVALID: Final = _bad("the Host header is not a host name: send the name or address of the service")
LENGTH_INVALID: Final = _bad(f"Content-Length must be one number of at most {LENGTH_DIGITS_MAX} digits")
LENGTH_TWICE: Final = _bad("Content-Length and Transfer-Encoding contradict each other: send one of them")
CODING_UNKNOWN: Final = _bad("Transfer-Encoding must be chunked and nothing else: name compression in Content-Encoding")
CODING_TOO_NEW: Final = _bad("HTTP/1.0 has no Transfer-Encoding: send Content-Length")


def flaw_in(version: str, hosts: Sequence[bytes], lengths: Sequence[bytes], codings: Sequence[bytes]) -> Flaw | None:
    """Return what is wrong with the headers that say which host a request is for and where it ends."""
    if len(hosts) > 1:
        return HOST_REPEATED
    host = hosts[0] if hosts else b""  # Empty means missing: the main port's server sends it so.
    if not host:
        if version != "1.0":
            return HOST_MISSING
    elif len(host) > _HOST_BYTES_MAX or not _is_host(host):
        return HOST_INVALID
    if lengths and (len(lengths) > 1 or len(lengths[0]) > LENGTH_DIGITS_MAX or not lengths[0].isdigit()):
        return LENGTH_INVALID
    return _flaw_in_coding(version, lengths, codings) if codings else None


def _flaw_in_coding(version: str, lengths: Sequence[bytes], codings: Sequence[bytes]) -> Flaw | None:
    if lengths:
        return LENGTH_TWICE
    if version == "1.0":
        return CODING_TOO_NEW
    return None if len(codings) == 1 and codings[0].strip().lower() == b"chunked" else CODING_UNKNOWN


# Nearly all requests name the same few hosts.
@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None
