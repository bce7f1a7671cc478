"""What can go wrong with a whole request, as one exception with a stable code.

A problem knows no HTTP: `web.envelopes` maps each code to its status, and the plane that answers picks the
envelope.
"""

from enum import StrEnum


class Code(StrEnum):
    """The stable, machine-readable name of a problem. Clients match on it."""

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


class Problem(Exception):  # noqa: N818 - it is the word of the domain, see the glossary
    """A request that cannot be answered as asked. The message says what to do and never echoes a credential."""

    def __init__(self, code: Code, message: str, **facts: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts  # what a client may act on, such as when to come back


class Busy(Problem):
    """Too much is asked of this process: nothing was done, and it is worth to ask again."""

    def __init__(self) -> None:
        super().__init__(Code.NOT_STORED, "busy: nothing was stored, retry", retry_after_s=1)


def not_found() -> Problem:
    """Return the one answer for foreign, missing and malformed ids: the API tells nobody what exists."""
    return Problem(Code.NOT_FOUND, "no such resource: check the path and the id")


def unauthorized() -> Problem:
    """Return the one answer for missing, malformed, unknown, revoked and misplaced credentials."""
    return Problem(Code.UNAUTHORIZED, "unauthorized")


def unknown_path() -> Problem:
    """Return the answer of the data planes for a path that nobody serves."""
    return Problem(Code.NOT_FOUND, "no such path: check the address against the API reference")


def unknown_project() -> Problem:
    """Return the one answer for projects of others, of the other plane, missing and malformed ones."""
    return Problem(Code.NOT_FOUND, "unknown project")
