"""The session cookie."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from starlette.responses import Response

from mauve.access.sessions import LIFETIME_MS
from mauve.core.secret import Secret

_NAME: Final = "mauve_session"
# The prefix makes browsers refuse the cookie unless it is Secure, for the whole site and for this host alone.
_SECURE_PREFIX: Final = "__Host-"
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class SessionCookie:
    name: str
    is_secure: bool

    def set(self, response: Response, credential: Secret) -> Response:
        return self._set(response, credential.reveal(), LIFETIME_MS // 1000)

    def clear(self, response: Response) -> Response:
        return self._set(response, "", 0)

    def _set(self, response: Response, value: str, max_age_s: int) -> Response:
        response.set_cookie(
            self.name,
            value,
            max_age_s,
            secure=self.is_secure,
            httponly=True,
            samesite="Lax",  # type: ignore[arg-type]  # accepted, and the spelling of the standard
        )
        return response


def cookie_for(identity: str, public_url: str | None) -> SessionCookie:
    """Return the cookie of an installation. The ports of a host share cookies, so each installation needs its own."""
    is_secure = public_url is not None and public_url.startswith("https://")
    name = f"{_NAME}_{sha256(identity.encode()).hexdigest()[:_DIGITS]}"
    return SessionCookie(f"{_SECURE_PREFIX}{name}" if is_secure else name, is_secure)
