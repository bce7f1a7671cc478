"""What can go wrong with a whole request, as one exception with a stable code.

A problem knows no HTTP: `web.envelopes` maps each code to its status, and the plane that answers picks the
envelope.
"""

from enum import StrEnum


class Code(StrEnum):
    """The stable, machine-readable name of a problem. Clients match on it."""

    INSUFFICIENT_SCOPE = "insufficient_scope"
    INVALID_BODY = "invalid_body"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_FOUND = "not_found"
    NOT_STORED = "not_stored"
    UNAUTHORIZED = "unauthorized"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"


class Problem(Exception):  # noqa: N818 - it is the word of the domain, see the glossary
    """A request that cannot be answered as asked. The message says what to do and never echoes a credential."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def not_found() -> Problem:
    """Return the one answer for foreign, missing and malformed ids: the API tells nobody what exists."""
    return Problem(Code.NOT_FOUND, "no such resource: check the path and the id")


def unauthorized() -> Problem:
    """Return the one answer for missing, malformed, unknown, revoked and misplaced credentials."""
    return Problem(Code.UNAUTHORIZED, "unauthorized")


def unknown_path() -> Problem:
    """Return the answer of the data planes for a path that nobody serves."""
    return Problem(Code.NOT_FOUND, "no such path: check the address against the API reference")
