"""Problems on the wire: one table of statuses, one envelope per plane."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from mauve.core.problems import Code, Problem
from mauve.core.times import utc_instant
from mauve.web.messages import Reply, json_reply

STATUS_OF: Final[Mapping[Code, HTTPStatus]] = MappingProxyType(
    {
        Code.EVENT_CAP_REACHED: HTTPStatus.FORBIDDEN,
        Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
        Code.INGEST_SUSPENDED: HTTPStatus.PAYMENT_REQUIRED,
        Code.INSUFFICIENT_SCOPE: HTTPStatus.FORBIDDEN,
        Code.INVALID_BODY: HTTPStatus.BAD_REQUEST,
        Code.MALFORMED: HTTPStatus.BAD_REQUEST,
        Code.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
        Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
        Code.NOT_STORED: HTTPStatus.SERVICE_UNAVAILABLE,
        Code.QUERIES_SPENT: HTTPStatus.TOO_MANY_REQUESTS,
        Code.QUERY_FAILED: HTTPStatus.SERVICE_UNAVAILABLE,
        Code.RATE_LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
        Code.RAW_SCANS_SPENT: HTTPStatus.TOO_MANY_REQUESTS,
        Code.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        Code.UNAUTHORIZED: HTTPStatus.UNAUTHORIZED,
        Code.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        Code.UPSTREAM_UNAVAILABLE: HTTPStatus.BAD_GATEWAY,
    }
)
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="service"'}


def control_reply(problem: Problem) -> Reply:
    """Return `{error: {code, message}}`."""
    return _reply(problem, {"error": {"code": problem.code, "message": problem.message}})


_CODES_SHOWN_TO_DATA_CLIENTS: Final = frozenset(
    {Code.EVENT_CAP_REACHED, Code.INGEST_SUSPENDED, Code.INSUFFICIENT_SCOPE}
)
_ALLOWANCE_OF: Final = {Code.QUERIES_SPENT: "queries", Code.RAW_SCANS_SPENT: "raw_scans"}


def data_reply(problem: Problem) -> Reply:
    """Return `{ok: false, error}`, with `code` and facts where clients act on them."""
    if problem.code in _ALLOWANCE_OF:
        return _allowance_reply(problem, _ALLOWANCE_OF[problem.code])
    body: dict[str, object] = {"ok": False, "error": problem.message}
    if problem.code in _CODES_SHOWN_TO_DATA_CLIENTS:
        body |= {"code": problem.code, **problem.facts}
    reply = _reply(problem, body)
    return reply.with_headers({"x-service-throttle": "rate_limit"}) if problem.code is Code.RATE_LIMITED else reply


def _allowance_reply(problem: Problem, scope: str) -> Reply:
    """Return the refusal of a read whose allowance is spent. It has no Retry-After: only the reset helps."""
    reset_at = utc_instant(problem.facts["reset_at"])
    body = {"ok": False, "reason": "allowance", "scope": scope, "reset_at": reset_at, "error": problem.message}
    throttle = {"x-service-throttle": f"allowance:{scope}", "x-service-reset": reset_at}
    return json_reply(STATUS_OF[problem.code], body).with_headers(throttle)


def is_safe_method(method: str) -> bool:
    """Return whether this is GET, or HEAD, which is answered alike: the servers leave out the body."""
    return method in {"GET", "HEAD"}


def wrong_method(allowed: str) -> Reply:
    """Return the data planes' reply to a method that the path does not accept."""
    reply = data_reply(Problem(Code.METHOD_NOT_ALLOWED, f"this path takes {allowed}: send that"))
    return reply.with_headers({"allow": "GET, HEAD" if allowed == "GET" else allowed})


def _reply(problem: Problem, body: Mapping[str, object]) -> Reply:
    challenge = _CHALLENGE if problem.code is Code.UNAUTHORIZED else {}
    wait = {"retry-after": str(problem.facts["retry_after_s"])} if "retry_after_s" in problem.facts else {}
    reply, added = json_reply(STATUS_OF[problem.code], body), challenge | wait
    return reply.with_headers(added) if added else reply  # Encoded heads are cached by the identity of their headers.
