"""The errors of reads and changes, by machine code, never by text.

MauveError
├── Unauthorized        the credential is missing, unknown or revoked
├── InsufficientScope   the credential may not do this
├── NotFound            no such app, key, project or metric
├── InvalidBody         a value is not allowed
├── RateLimited         too many reads this minute: `retry_after`
├── AllowanceSpent      no more reads until `reset_at`
└── Unavailable         the service cannot answer now, or cannot be reached
"""

from __future__ import annotations

import re
from datetime import datetime

from mauve_metrics._answers import NO_ANSWER, Answer, retry_after_s

_UNAVAILABLE = frozenset({NO_ANSWER, 502, 503, 504})
_THROTTLED = 429
_FRACTION = re.compile(r"\.[0-9]+")
RATE_LIMIT = "rate_limit"


class MauveError(Exception):
    """A request that failed. `code` is the service's machine code if it gave one; `status` is 0 without an answer."""

    def __init__(self, message: str, *, status: int = NO_ANSWER, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unauthorized(MauveError):  # noqa: N818 - the contract's names
    """The credential is missing, unknown or revoked."""


class InsufficientScope(MauveError):  # noqa: N818
    """The credential may not do this."""


class NotFound(MauveError):  # noqa: N818
    """No such app, key, project or metric is visible to the credential."""


class InvalidBody(MauveError):  # noqa: N818
    """A value that was sent is not allowed; nothing was changed."""


class RateLimited(MauveError):  # noqa: N818
    """Too many reads. Retry after `retry_after` seconds; None if the service did not say when.

    A retry helps only if the code is `rate_limit`.
    """

    def __init__(self, message: str, *, status: int, code: str | None, retry_after: float | None) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after = retry_after


class AllowanceSpent(MauveError):  # noqa: N818
    """The allowance for `scope` is spent until `reset_at`."""

    def __init__(self, message: str, *, status: int, scope: str, reset_at: datetime | None) -> None:
        super().__init__(message, status=status, code="allowance")
        self.scope = scope
        self.reset_at = reset_at


class Unavailable(MauveError):  # noqa: N818
    """The service cannot answer now, or cannot be reached. A retry may succeed."""

    def __init__(self, message: str, *, status: int, code: str | None, retry_after: float | None) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after = retry_after


_BY_CODE: dict[str, type[MauveError]] = {
    "unauthorized": Unauthorized,
    "insufficient_scope": InsufficientScope,
    "not_found": NotFound,
    "invalid_body": InvalidBody,
}
_BY_STATUS: dict[int, type[MauveError]] = {400: InvalidBody, 401: Unauthorized, 403: InsufficientScope, 404: NotFound}


def error_from(answer: Answer, now_s: float, advice: str) -> MauveError:
    """Return the error of an answer that is not a success, with advice in its message."""
    code, message = _code_and_message(answer)
    message = f"{message}: {advice}" if advice else message
    status = answer.status
    if status == _THROTTLED:
        return _throttled(answer, code, message, now_s)
    if status in _UNAVAILABLE:
        return Unavailable(message, status=status, code=code, retry_after=retry_after_s(answer, now_s))
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status, MauveError)
    return kind(message, status=status, code=code)


def _code_and_message(answer: Answer) -> tuple[str | None, str]:
    """Read the envelope of either plane."""
    if answer.status == NO_ANSWER:
        return None, f"the service cannot be reached: {answer.body.decode(errors='replace')}"
    content = answer.json()
    error = content.get("error")
    code, message = (
        (error.get("code"), error.get("message")) if isinstance(error, dict) else (content.get("code"), error)
    )
    text = message if isinstance(message, str) else f"the service answered {answer.status}"
    return (code if isinstance(code, str) else None), text


def _throttled(answer: Answer, code: str | None, message: str, now_s: float) -> MauveError:
    throttle, _, scope = answer.headers.get("x-service-throttle", "").partition(":")
    if throttle == "allowance":
        return AllowanceSpent(message, status=answer.status, scope=scope, reset_at=_reset_at(answer))
    if throttle == RATE_LIMIT:
        asked_s = retry_after_s(answer, now_s)
        return RateLimited(message, status=answer.status, code=RATE_LIMIT, retry_after=asked_s)
    return RateLimited(message, status=answer.status, code=code, retry_after=None)


def _reset_at(answer: Answer) -> datetime | None:
    text = answer.headers.get("x-service-reset") or str(answer.json().get("reset_at"))
    text = _FRACTION.sub(lambda found: found[0][:7].ljust(7, "0"), text)  # Python 3.9 parses only three or six digits.
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
