"""The headers of answers, by the name under which they are shown. Which answer carries which, its reply tells."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mauve.openapi.operation import Schema
from mauve.query.ask import Freshness
from mauve.web.messages import Reply

_TEXT: Final = {"type": "string"}
_SECONDS: Final = {"type": "integer", "minimum": 0}


def _header(text: str, schema: Schema) -> Mapping[str, Any]:
    return {"description": text, "schema": schema}


HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "WWW-Authenticate": _header("Which credential is asked for.", {"const": 'Bearer realm="service"'}),
    "Retry-After": _header("Seconds to wait before the next attempt.", {"type": "integer", "minimum": 1}),
    "x-service-throttle": _header(
        "Which limit refused. Branch on this rather than on the status.",
        {"enum": ["rate_limit", "allowance:queries", "allowance:raw_scans"]},
    ),
    "x-service-reset": _header(
        "When the allowance is there again; until then retrying is in vain.", {"type": "string", "format": "date-time"}
    ),
    "x-cache": _header(
        "Where the answer comes from; `stale` is the last known one, given because reading anew failed.",
        {"enum": [freshness.value for freshness in Freshness]},
    ),
    "x-cache-age": _header("How many seconds old a stale answer is.", _SECONDS),
    "x-service-truncated": _header(
        "How many rows are given, the most frequent first. There were more: they are counted, and not in this answer.",
        {"type": "integer", "minimum": 1},
    ),
    "Allow": _header("The method that this path takes.", _TEXT),
    "Cache-Control": _header("How long the answer may be kept.", _TEXT),
    "ETag": _header("Names this version; send it back as `If-None-Match`.", _TEXT),
    "Access-Control-Allow-Origin": _header("Pages of any origin may read the answer.", {"const": "*"}),
    "Access-Control-Expose-Headers": _header("What a page may read besides.", _TEXT),
    "Access-Control-Allow-Methods": _header("What a page may send.", _TEXT),
    "Access-Control-Allow-Headers": _header("The headers that a page may send.", _TEXT),
    "Access-Control-Max-Age": _header("For how many seconds a browser need not ask again.", _SECONDS),
    "Content-Security-Policy": _header("Nothing is loaded, nothing runs.", _TEXT),
    "Referrer-Policy": _header("Links tell nobody where they were found.", _TEXT),
    "X-Content-Type-Options": _header("The type is what it says.", {"const": "nosniff"}),
}
_SHOWN_AS: Final = {name.lower(): name for name in HEADERS}


def headers_of(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the headers of answers with one status; required are those that all of them carry."""
    carried = [reply.headers.keys() - {"content-type"} for reply in replies]  # OpenAPI names that one elsewhere
    always = frozenset.intersection(*map(frozenset, carried))
    names = dict.fromkeys(name for reply in replies for name in reply.headers if name != "content-type")
    return {_SHOWN_AS[name]: {**HEADERS[_SHOWN_AS[name]], "required": name in always} for name in names}
