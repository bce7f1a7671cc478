"""Failures of a whole request, as one exception with a stable code, and of an item of a batch, as a value.

A problem does not know HTTP: `web.envelopes` maps each code to a status, and the plane that answers picks the
envelope.
"""

from enum import StrEnum
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Code(StrEnum):
    """The stable, machine-readable code of a problem. Clients match on it."""

    EVENT_CAP_REACHED = "event_cap_reached"
    FORBIDDEN = "forbidden"
    INGEST_SUSPENDED = "ingest_suspended"
    INSUFFICIENT_SCOPE = "insufficient_scope"
    INVALID_BODY = "invalid_body"
    MALFORMED = "malformed"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_FOUND = "not_found"
    NOT_STORED = "not_stored"
    QUERIES_SPENT = "queries_spent"
    QUERY_FAILED = "query_failed"
    RATE_LIMITED = "rate_limited"
    RAW_SCANS_SPENT = "raw_scans_spent"
    TOO_LARGE = "too_large"
    UNAUTHORIZED = "unauthorized"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"


class Problem(Exception):  # noqa: N818 - the domain's own word, see the glossary
    """A request that cannot be served as asked. The message says what to do and never echoes a credential."""

    def __init__(self, code: Code, message: str, **facts: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts  # what a client may act on, such as when to retry


class Busy(Problem):
    """This process is overloaded: nothing was done, and a retry may succeed."""

    def __init__(self) -> None:
        super().__init__(Code.NOT_STORED, "busy: nothing was stored, retry", retry_after_s=1)


def not_found() -> Problem:
    """Return the one answer for foreign, missing and malformed ids, so that the API does not reveal what exists."""
    return Problem(Code.NOT_FOUND, "no such resource: check the path and the id")


def existing(found: T | None) -> T:
    if found is None:
        raise not_found()
    return found


def unauthorized() -> Problem:
    """Return the one answer for missing, malformed, unknown, revoked and misplaced credentials."""
    return Problem(Code.UNAUTHORIZED, "unauthorized")


def unknown_path() -> Problem:
    """Return the data planes' answer for a path that no plane serves."""
    return Problem(Code.NOT_FOUND, "no such path: check the address against the API reference")


def unknown_webhook() -> Problem:
    """Return the one answer for an unknown biller or project, and for one without a signing secret."""
    return Problem(
        Code.NOT_FOUND,
        "no such webhook address, or no signing secret is saved for it: see the app's Webhooks page for both",
    )


def unknown_project() -> Problem:
    """Return the one answer for foreign, missing and malformed projects and those of the other environment."""
    return Problem(Code.NOT_FOUND, "unknown project")


class RejectionCode(StrEnum):
    # A field is missing or invalid.
    NAME = "name"
    USER = "user"
    ID = "id"
    AT = "at"
    SENT_AT = "sent_at"
    PROPS = "props"
    PROPS_VALUE = "props_value"
    AMOUNT = "amount"
    CURRENCY = "currency"
    EARNED = "earned"
    TYPE = "type"
    STATUS = "status"
    MRR = "mrr"
    # The item as a whole.
    NOT_AN_OBJECT = "not_an_object"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    LONE_SURROGATE = "lone_surrogate"
    REPEATED_KEY = "repeated_key"
    TOO_DEEP = "too_deep"
    TOO_LARGE = "too_large"
    # Valid in itself, but not from this sender or not now.
    SERVER_KEY_REQUIRED = "server_key_required"
    CONFLICT = "conflict"


class Fault(NamedTuple):
    code: RejectionCode
    text: str  # names the field and never echoes a value
