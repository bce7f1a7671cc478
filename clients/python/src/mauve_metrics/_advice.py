"""Advice for failed requests: the address, the kind of credential, and what to check. Pure text."""

from __future__ import annotations

import re
import ssl
from http.client import BadStatusLine
from socket import gaierror

from mauve_metrics._answers import NO_ANSWER, Answer

_START = re.compile("(sk|pk|ctl)_(live|test)_")
_KINDS = {"sk": "the server key", "pk": "the publishable key", "ctl": "the control token"}
_MASKABLE_CHARACTERS = 32  # Four characters of a shorter credential would reveal too much.
_NOT_MAUVE = "This is not Mauve: check the host, the port and the path of url"
_UNAUTHORIZED, _PAYMENT_REQUIRED, _FORBIDDEN, _NOT_FOUND = 401, 402, 403, 404
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # A later attempt may succeed.


def credential_name(credential: str) -> str:
    """Return the kind of a credential with its first and last characters, as the dashboard lists it."""
    start = _START.match(credential)
    if start is None:
        return "an unknown kind of credential"
    return f"{_KINDS[start[1]]} {start[0]}…{credential[-4:] if len(credential) >= _MASKABLE_CHARACTERS else ''}"


def about_failure(error: BaseException) -> str:
    """Describe a network error and what to check."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ConnectionRefusedError):
        return f"{text}. Nothing is listening there: check the host and port in url, and that the service is running"
    if isinstance(error, gaierror):
        return f"{text}. The host name is unknown: check url"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{text}. The certificate is not trusted: check the host name in url, and the system's certificates"
    if isinstance(error, ssl.SSLError):
        return f"{text}. The port may not use TLS: check the port, or use http:// in url"
    if isinstance(error, (BadStatusLine, ConnectionResetError)):
        return f"{text}. The port may require TLS: check the port, or use https:// in url"
    return text


def hold_line(path: str, count: int, url: str, answer: Answer, reason: str, key_name: str) -> str:  # noqa: PLR0917
    """Return the log line about the held items of an endpoint."""
    noun = "subscription" if path.endswith("/objects") else "event"
    held = f"1 {noun} is held" if count == 1 else f"{count} {noun}s are held"
    said = reason if answer.status == NO_ANSWER else f"answered {reason}"
    return f"{held}: {url} {said}. {_about_hold(answer, key_name)}"


def _about_hold(answer: Answer, key_name: str) -> str:
    if answer.status == NO_ANSWER or answer.status in _BUSY:
        return "The client retries automatically"
    if answer.status == _UNAUTHORIZED:
        return (
            f"The service does not accept {key_name}: mint a key on the app's page in the dashboard or with "
            "`mauve key mint`, and check that url is the address of the service that minted it"
        )
    if answer.status == _PAYMENT_REQUIRED:
        return "The organization is suspended: the operator of the service can resume it"
    if answer.status == _FORBIDDEN:
        return "The event cap has been reached: raise it in the dashboard, or wait for its reset"
    location = answer.headers.get("location")
    return _NOT_MAUVE if location is None else f"It redirects to {location[:200]!r}: use that address as url"


def about_call(answer: Answer, url: str, expected: str, credential: str) -> str:
    """Return advice for a read or a change that failed."""
    if answer.status == NO_ANSWER:
        return f"url is {url}"
    if answer.is_page:
        return f"{url} answered with a web page: check that url is the main address of the service"
    if answer.status in {_UNAUTHORIZED, _FORBIDDEN}:
        return f"{expected}; this is {credential_name(credential)}"
    if answer.status == _NOT_FOUND and not isinstance(answer.json().get("error"), dict):
        # The ingest port and an unknown project both answer with this envelope.
        return f"check that {url} is the main address of the service, not its ingest port, and check project"
    return ""
