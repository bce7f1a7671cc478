"""Say what to do about a request that failed: the address, the kind of credential, and what to check. Pure text."""

from __future__ import annotations

import re
import ssl
from http.client import BadStatusLine
from socket import gaierror

from mauve_metrics._answers import NO_ANSWER, Answer

_START = re.compile("(sk|pk|ctl)_(live|test)_")
_KINDS = {"sk": "the server key", "pk": "the publishable key", "ctl": "the control token"}
_MASKABLE_CHARACTERS = 32  # Four characters of less would tell too much.
_NOT_MAUVE = "This is not Mauve: check the host, the port and the path of url"
_UNAUTHORIZED, _PAYMENT_REQUIRED, _FORBIDDEN, _NOT_FOUND = 401, 402, 403, 404
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # A later attempt may succeed.


def credential_name(credential: str) -> str:
    """Return the kind of a credential, and how it begins and ends, by which the dashboard lists it."""
    start = _START.match(credential)
    if start is None:
        return "a credential of no known kind"
    return f"{_KINDS[start[1]]} {start[0]}…{credential[-4:] if len(credential) >= _MASKABLE_CHARACTERS else ''}"


def about_failure(error: BaseException) -> str:
    """Return an error of the network as text, with what to check."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ConnectionRefusedError):
        return f"{text}. Nothing listens there: check the host and the port of url, and that the service runs"
    if isinstance(error, gaierror):
        return f"{text}. The host name is unknown: check url"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{text}. The certificate is not trusted: check the host name in url, and the system's certificates"
    if isinstance(error, ssl.SSLError):
        return f"{text}. The port may not speak TLS: check it, or begin url with http://"
    if isinstance(error, (BadStatusLine, ConnectionResetError)):
        return f"{text}. The port may speak TLS: check it, or begin url with https://"
    return text


def hold_line(path: str, count: int, url: str, answer: Answer, reason: str, key_name: str) -> str:  # noqa: PLR0917
    """Return the log line about the items of an endpoint that are held."""
    noun = "subscription" if path.endswith("/objects") else "event"
    held = f"1 {noun} is held" if count == 1 else f"{count} {noun}s are held"
    said = reason if answer.status == NO_ANSWER else f"answered {reason}"
    return f"{held}: {url} {said}. {_about_hold(answer, key_name)}"


def _about_hold(answer: Answer, key_name: str) -> str:
    if answer.status == NO_ANSWER or answer.status in _BUSY:
        return "It is tried again"
    if answer.status == _UNAUTHORIZED:
        return (
            f"The service does not accept {key_name}: mint a key on the app's page in the dashboard or with "
            "`mauve key mint`, and check that url is the address of the service that minted it"
        )
    if answer.status == _PAYMENT_REQUIRED:
        return "The organization is suspended: its owner has to renew the subscription"
    if answer.status == _FORBIDDEN:
        return "The event cap is reached: raise it in the dashboard, or wait for its reset"
    location = answer.headers.get("location")
    return _NOT_MAUVE if location is None else f"It redirects to {location[:200]!r}: use that address as url"


def about_call(answer: Answer, url: str, expected: str, credential: str) -> str:
    """Return what to do about a read or a change that failed."""
    if answer.status == NO_ANSWER:
        return f"url is {url}"
    if answer.is_page:
        return f"{url} answered with a web page: check that url is the main address of the service"
    if answer.status in {_UNAUTHORIZED, _FORBIDDEN}:
        return f"{expected}; this is {credential_name(credential)}"
    if answer.status == _NOT_FOUND and not isinstance(answer.json().get("error"), dict):
        # The ingest plane has this envelope, and so has an unknown project.
        return f"check that {url} is the main address of the service, not that of its ingest port, and check project"
    return ""
