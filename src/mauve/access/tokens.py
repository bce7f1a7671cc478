"""Control tokens: their format and authentication.

A token is `ctl_live_`, a public lookup id of 16 characters and a secret of 40, without separators. `ctl_test_` has
the same format and is reserved: no such token exists.
"""

import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mauve.access.keys import digest_of
from mauve.core.app import Environment
from mauve.core.credential import Scope
from mauve.core.ids import Randomness
from mauve.core.problems import Code, Problem, unauthorized
from mauve.core.secret import Secret

if TYPE_CHECKING:
    from mauve.stores.catalog.credentials import Tokens

_PREFIX: Final = "ctl_live_"
_LOOKUP_CHARACTERS: Final = 16
_SECRET_CHARACTERS: Final = 40
_TOKEN: Final = re.compile(r"ctl_(live|test)_([0-9A-Za-z]{16})([0-9A-Za-z]{40})", re.ASCII)
_NO_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A well-formed token as presented by a caller, not yet verified."""

    environment: Environment
    lookup_id: str
    digest: bytes  # of its secret part

    def matches(self, digest: bytes | None) -> bool:
        """Return whether the secret matches a stored digest. A missing digest takes as long as a wrong one."""
        return hmac.compare_digest(self.digest, digest or _NO_DIGEST) and digest is not None


@dataclass(frozen=True, slots=True)
class Caller:
    org_id: str
    environment: Environment
    scopes: frozenset[Scope]
    lookup_id: str  # of the token
    token_id: str

    def require(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise insufficient_scope(scope)


def insufficient_scope(scope: Scope) -> Problem:
    return Problem(Code.INSUFFICIENT_SCOPE, f"this token does not carry the scope {scope}: mint one that does")


def mint(randomness: Randomness) -> tuple[Secret, PresentedToken]:
    """Return the text of a new token, which is known only now, and what is stored of it."""
    lookup_id, secret = randomness.base62(_LOOKUP_CHARACTERS), randomness.base62(_SECRET_CHARACTERS)
    return Secret(f"{_PREFIX}{lookup_id}{secret}"), PresentedToken(Environment.LIVE, lookup_id, digest_of(secret))


def authenticate(tokens: "Tokens", credential: str | None) -> Caller:
    """Return the caller, or raise the same 401 for every bad credential.

    An unknown lookup id takes the same steps as a wrong secret, so that timing reveals nothing.
    """
    presented = presented_token(credential)
    if presented is None:
        raise unauthorized()
    stored = tokens.find(presented.lookup_id)
    matches = presented.matches(stored.digest if stored is not None else None)
    if stored is None or not matches or stored.token.revoked or presented.environment is not Environment.LIVE:
        raise unauthorized()
    return Caller(
        stored.token.org_id, Environment.LIVE, stored.token.scopes, presented.lookup_id, stored.token.token_id
    )


def presented_token(credential: str | None) -> PresentedToken | None:
    """Parse a credential; return None if it is not in the format of a control token."""
    parsed = _TOKEN.fullmatch(credential) if credential is not None else None
    if parsed is None:
        return None
    environment, lookup_id, secret = parsed.groups()
    return PresentedToken(Environment(environment), lookup_id, digest_of(secret))
