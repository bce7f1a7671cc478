"""A browser's request, read whole and within bounds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import cookie_parser

from mauve.core.problems import Code, Problem
from mauve.web.asgi import AsgiRequest, Receive, Scope
from mauve.web.body import BodyTooLargeError, IncompleteBodyError

BODY_BYTES_MAX: Final = 64 * 1024
READING: Final = frozenset({"GET", "HEAD"})
_FIELDS_MAX: Final = 100
_FORM: Final = "application/x-www-form-urlencoded"

Fields = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class PageRequest:
    method: str
    path: str
    query: Fields
    headers: Mapping[str, str]
    body: bytes | None  # None: too large, or cut off
    peer: str  # the address at the other end of the connection

    @property
    def is_reading(self) -> bool:
        return self.method in READING

    def cookie(self, name: str) -> str | None:
        """Return a cookie, read as browsers write it: others on this host may set cookies that no standard allows."""
        return cookie_parser(self.headers.get("cookie", "")).get(name)

    def form(self) -> Fields:
        """Return the fields of the form that was sent."""
        if self.body is None:
            raise Problem(Code.TOO_LARGE, "the form is too large or did not arrive whole: send it again")
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "this takes a form as browsers send it")
        return _fields(self.body)


async def read_page_request(scope: Scope, receive: Receive) -> PageRequest:
    opened = AsgiRequest(scope, receive)
    try:
        body = await opened.body(BODY_BYTES_MAX)
    except (BodyTooLargeError, IncompleteBodyError):
        body = None
    client = scope.get("client")
    return PageRequest(
        method=opened.method,
        path=opened.path,
        query=_query(scope["query_string"]),
        headers=_headers(scope["headers"]),
        body=body,
        peer=client[0] if client else "",
    )


def _headers(sent: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name; those sent several times are joined, as HTTP says."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in sent:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        between = "; " if name == "cookie" else ", "
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    return headers


def _query(encoded: bytes) -> Fields:
    """Return the query's fields; a broken query is none at all: no page needs one."""
    try:
        return _fields(encoded)
    except Problem:
        return {}


def _fields(encoded: bytes) -> Fields:
    try:
        return parse_qs(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise Problem(Code.MALFORMED, "the form could not be read: send it again") from None
