"""The fields of a browser's request, parsed within limits.

Starlette needs another package to parse forms, and does not limit the number of fields.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from mauve.core.problems import Code, Problem
from mauve.web.app import joined_header

BODY_BYTES_MAX: Final = 64 * 1024
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_FIELDS_MAX: Final = 100
_FORM: Final = "application/x-www-form-urlencoded"

Fields = Mapping[str, Sequence[str]]


class ParameterProblem(Problem):
    """Parameters of the address are wrong. The page is shown without them, and says what to change."""

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(Code.MALFORMED, message)
        self.names = names


def is_safe(request: Request) -> bool:
    """Return whether the request only reads."""
    return request.method in _SAFE_METHODS


def query_from(request: Request) -> Fields:
    """Return the query parameters. No page requires any: a malformed query counts as empty."""
    try:
        return _fields(request.scope["query_string"])
    except Problem:
        return {}


def form_from(request: Request, body: bytes | None) -> Fields:
    """Return the fields of the form. A body of None was too large or cut off."""
    if body is None:
        raise Problem(Code.TOO_LARGE, "the form is too large or incomplete: send it again")
    if (joined_header(request, "content-type") or "").partition(";")[0].strip().lower() != _FORM:
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "this accepts only forms sent by a browser")
    return _fields(body)


def _fields(encoded: bytes) -> Fields:
    try:
        return parse_qs(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise Problem(Code.MALFORMED, "the form could not be read: send it again") from None


def check_origin(request: Request, public_url: str | None) -> None:
    """Refuse a change unless the browser confirms that our own page sent it.

    The session cookie is `SameSite=Lax`, so forms of other sites are sent without it. This is the second line of
    defense, and the only one for the sign-in form, which needs no cookie.
    """
    if not _is_ours(request, public_url):
        raise Problem(Code.FORBIDDEN, "this did not come from a page of this dashboard: open it and try again")


def _is_ours(request: Request, public_url: str | None) -> bool:
    site = joined_header(request, "sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # Browsers omit Sec-Fetch-Site on plain HTTP to another machine, and older ones always do.
    origin = joined_header(request, "origin")
    if origin is None:
        return False
    named = {joined_header(request, "host"), None if public_url is None else urlsplit(public_url).netloc}
    return urlsplit(origin).netloc in named - {None, ""}
