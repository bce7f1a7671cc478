"""Classify the answer to a batch: the whole table, as one pure function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Callable, NamedTuple, Union

BACKOFF_S = 60.0
UNAUTHORIZED_S = 300.0
SUSPENDED_S = 60.0
CAPPED_S = 600.0
RETRY_AFTER_S = 3600.0  # Retry within an hour, even if the server asks for a longer wait.

_COUNT_DIGITS = 10  # A longer count is invalid.
_END_OF_TIME_MS = 2**53  # A later time is invalid.

NO_ANSWER = 0  # in place of a status
_ACCEPTED, _BAD_REQUEST, _UNAUTHORIZED, _PAYMENT_REQUIRED, _FORBIDDEN = 202, 400, 401, 402, 403
_TOO_LARGE, _UNSUPPORTED_MEDIA_TYPE, _UNPROCESSABLE = 413, 415, 422


class Answer(NamedTuple):
    """The answer to a request. If there was none, the body holds the reason."""

    status: int
    headers: Mapping[str, str]  # the names in lowercase
    body: bytes

    @property
    def is_cut_off(self) -> bool:
        """Return whether the body is a truncated JSON object: its list of rejected items may be missing."""
        return self.body.lstrip().startswith(b"{") and self._content() is None

    @property
    def is_page(self) -> bool:
        """Return whether this is a web page, which the service's endpoints never send."""
        return self.headers.get("content-type", "").startswith("text/html")

    def json(self) -> dict[str, Any]:
        """Return the body if it is a JSON object, else an empty one."""
        content = self._content()
        return content if isinstance(content, dict) else {}

    def _content(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):  # It may be nested too deeply.
            return None


@dataclass(frozen=True)
class Accepted:
    """The service stored the batch, apart from the rejected items."""

    reasons: Mapping[int, str] = field(default_factory=dict)  # of rejected items, by index
    moved: int = 0  # items whose time the service moved


@dataclass(frozen=True)
class Refused:
    """The batch can never be accepted."""

    reason: str
    reasons: Mapping[int, str] = field(default_factory=dict)  # of items, by index, if the service named them


@dataclass(frozen=True)
class TooLarge:
    """The body is too large: send fewer items per request."""

    reason: str


@dataclass(frozen=True)
class Held:
    """Retry the same items after this time."""

    seconds: float
    reason: str


Outcome = Union[Accepted, Refused, TooLarge, Held]
Uniform = Callable[[float, float], float]


def classify(answer: Answer, attempts: int, now_s: float, uniform: Uniform) -> Outcome:  # noqa: PLR0911 - a table
    """Return the outcome of sending a batch. `attempts` counts the consecutive attempts, including this one."""
    status = answer.status
    if status == _ACCEPTED and not answer.is_cut_off:
        return Accepted(_reasons(answer), _moved(answer))
    if status in {_BAD_REQUEST, _UNSUPPORTED_MEDIA_TYPE, _UNPROCESSABLE}:
        return Refused(_reason(answer), _reasons(answer))
    if status == _TOO_LARGE:
        return TooLarge(_reason(answer))
    if status == _UNAUTHORIZED:
        return Held(backoff_s(attempts, UNAUTHORIZED_S, uniform), _reason(answer))
    if status == _PAYMENT_REQUIRED:
        return Held(SUSPENDED_S, _reason(answer))
    if status == _FORBIDDEN:
        return _forbidden(answer, attempts, now_s, uniform)
    asked_s = retry_after_s(answer, now_s)
    return Held(backoff_s(attempts, BACKOFF_S, uniform) if asked_s is None else asked_s, _reason(answer))


def backoff_s(attempts: int, ceiling_s: float, uniform: Uniform) -> float:
    """Return a random wait that doubles with every attempt: from 1 to 2 s at first, up to the ceiling."""
    highest = min(ceiling_s, 2.0 ** min(attempts, 32))
    return uniform(highest / 2, highest)


def retry_after_s(answer: Answer, now_s: float) -> float | None:
    """Return the wait that the server asks for, from one second to an hour; None if it does not ask for one."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else parsedate_to_datetime(text).timestamp() - now_s
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 1.0), RETRY_AFTER_S)


def _moved(answer: Answer) -> int:
    text = answer.headers.get("x-service-moved", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < _COUNT_DIGITS else 0


def _forbidden(answer: Answer, attempts: int, now_s: float, uniform: Uniform) -> Outcome:
    content = answer.json()
    if content.get("code") != "event_cap_reached":
        return Refused(_reason(answer))
    resets_at = content.get("resets_at")
    if not isinstance(resets_at, (int, float)) or not 0 <= resets_at < _END_OF_TIME_MS:
        return Held(CAPPED_S, _reason(answer))
    left_s = resets_at / 1000 - now_s
    # If the reset time has passed but the cap still applies, the clocks differ.
    return Held(min(left_s, CAPPED_S) if left_s > 0 else backoff_s(attempts, BACKOFF_S, uniform), _reason(answer))


def _reason(answer: Answer) -> str:
    if answer.status == NO_ANSWER:
        return f"did not answer: {answer.body.decode(errors='replace')}"
    if answer.is_page:
        return f"{answer.status} with a web page: check that url is the address of the service"
    content = answer.json()
    error = content.get("code") or content.get("error")
    return f"{answer.status} {error}" if isinstance(error, str) else f"{answer.status}"


def _reasons(answer: Answer) -> dict[int, str]:
    errors = answer.json().get("errors")
    if not isinstance(errors, list):
        return {}
    named = [each for each in errors if isinstance(each, dict) and isinstance(each.get("index"), int)]
    return {each["index"]: str(each.get("reason", "rejected")) for each in named}
