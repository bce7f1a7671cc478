"""Parse the query string within bounds."""

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qs, quote

from mauve.core.problems import Code, Problem
from mauve.web.messages import Reply

_HINT: Final = "x-service-hint"
_PARAMETERS_MAX: Final = 100
_NAMES_SHOWN: Final = 5
_NAME_CHARACTERS_MAX: Final = 36
_CREDENTIAL: Final = re.compile(r"(?:sk|pk|ctl)_(?:live|test)_|whsec_|polar_whs_", re.IGNORECASE)
_CACHED_BYTES_MAX: Final = 512
_CACHE_SIZE: Final = 4_096


def parameters_from(query: bytes) -> Mapping[str, list[str]]:
    """Return every value of every parameter, empty ones too, in order."""
    return _parsed_cached(query) if len(query) <= _CACHED_BYTES_MAX else _parsed(query)


def _parsed(query: bytes) -> Mapping[str, list[str]]:
    try:
        parsed = parse_qs(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:
        raise Problem(
            Code.MALFORMED, f"the query string must be UTF-8 and hold at most {_PARAMETERS_MAX} parameters"
        ) from None
    return MappingProxyType(parsed)


# Clients repeat their questions: parsing would be most of the cost of a cached answer.
_parsed_cached: Final = lru_cache(_CACHE_SIZE)(_parsed)


def unknown_hint(query: bytes, known: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Return the header that names the parameters which are ignored; none if all are known."""
    try:
        unknown = [_shown(name) for name in parameters_from(query) if name and name not in known]
    except Problem:
        return {}
    names, more = ", ".join(unknown[:_NAMES_SHOWN]), len(unknown) - _NAMES_SHOWN
    hint = f"ignored unknown query parameters: {names}" + (f" and {more} more" if more > 0 else "")
    return {_HINT: hint} if unknown else {}


def with_unknown_hint(reply: Reply, query: bytes, known: frozenset[str] = frozenset()) -> Reply:
    """Add the hint to what a reply hints already. A 401 echoes nothing of its request."""
    if not query or reply.status == HTTPStatus.UNAUTHORIZED:
        return reply
    added = unknown_hint(query, known)
    if not added:
        return reply
    hints = [reply.headers[_HINT]] if _HINT in reply.headers else []
    return reply.with_headers({_HINT: "; ".join([*hints, added[_HINT]])})


def _shown(name: str) -> str:
    """Return a name that is safe in a header: escaped, short, and without credentials."""
    if _CREDENTIAL.search(name):
        return "(a credential)"
    escaped = quote(name, safe="[]")
    return escaped if len(escaped) <= _NAME_CHARACTERS_MAX else f"{escaped[:_NAME_CHARACTERS_MAX]}..."
