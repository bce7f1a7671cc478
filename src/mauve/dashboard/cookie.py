"""The session cookie."""

from typing import Final

from starlette.responses import Response

from mauve.access.sessions import LIFETIME_MS
from mauve.core.secret import Secret

_PLAIN: Final = "mauve_session"
# The prefix makes browsers refuse the cookie unless it is Secure, for the whole site and for this host alone.
_BEHIND_TLS: Final = "__Host-mauve_session"


def cookie_name(public_url: str | None) -> str:
    return _BEHIND_TLS if _is_behind_tls(public_url) else _PLAIN


def set_cookie(response: Response, public_url: str | None, credential: Secret) -> Response:
    return _set(response, public_url, credential.reveal(), LIFETIME_MS // 1000)


def clear_cookie(response: Response, public_url: str | None) -> Response:
    return _set(response, public_url, "", 0)


def _set(response: Response, public_url: str | None, value: str, max_age_s: int) -> Response:
    name = cookie_name(public_url)
    response.set_cookie(
        name,
        value,
        max_age_s,
        secure=_is_behind_tls(public_url),
        httponly=True,
        samesite="Lax",  # type: ignore[arg-type]  # accepted, and the spelling of the standard
    )
    return response


def _is_behind_tls(public_url: str | None) -> bool:
    return public_url is not None and public_url.startswith("https://")
