"""The session cookie."""

from typing import Final

from mauve.access.sessions import LIFETIME_MS
from mauve.core.secret import Secret

_PLAIN: Final = "mauve_session"
# The prefix makes browsers refuse the cookie unless it is Secure, for the whole site and for this host alone.
_BEHIND_TLS: Final = "__Host-mauve_session"


def cookie_name(public_url: str | None) -> str:
    return _BEHIND_TLS if _is_behind_tls(public_url) else _PLAIN


def set_cookie(public_url: str | None, credential: Secret) -> dict[str, str]:
    return _header(public_url, credential.reveal(), LIFETIME_MS // 1000)


def clear_cookie(public_url: str | None) -> dict[str, str]:
    return _header(public_url, "", 0)


def _header(public_url: str | None, value: str, max_age_s: int) -> dict[str, str]:
    secure = "; Secure" if _is_behind_tls(public_url) else ""
    cookie = f"{cookie_name(public_url)}={value}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite=Lax{secure}"
    return {"set-cookie": cookie}


def _is_behind_tls(public_url: str | None) -> bool:
    return public_url is not None and public_url.startswith("https://")
