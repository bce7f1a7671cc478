"""A member of an organization: e-mail address, sessions, and the one table of what each role may do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mauve.core.credential import Scope


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class User:
    user_id: str
    org_id: str
    email: str
    role: Role
    created_at: int


@dataclass(frozen=True, slots=True)
class Session:
    session_id: str
    user_id: str
    agent: str  # what the browser calls itself
    created_at: int
    seen_at: int  # to the minute
    expires_at: int  # regardless of use


_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+")
EMAIL_CHARACTERS_MAX: Final = 254


def email_from(text: str) -> str | None:
    """Return the address as it is stored, or None if it is not valid."""
    address = text.strip().lower()
    is_one = len(address) <= EMAIL_CHARACTERS_MAX and address.isprintable() and _ADDRESS.fullmatch(address) is not None
    return address if is_one else None


class Permission(StrEnum):
    """What a person may do beyond the scopes of control tokens."""

    TOKENS_MINT = "tokens:mint"  # with scopes of their own role
    TOKENS_REVOKE = "tokens:revoke"  # anyone's; their own are always allowed
    MEMBERS_WRITE = "members:write"
    ORGANIZATION_WRITE = "organization:write"
    ALERTS_WRITE = "alerts:write"  # rules, channels and quiet hours; e-mail is everyone's own choice
    CAP_WRITE = "cap:write"


Grant = Scope | Permission

_VIEWER: Final[frozenset[Grant]] = frozenset({Scope.APPS_READ, Scope.METRICS_READ, Permission.TOKENS_MINT})
_DEVELOPER: Final = _VIEWER | (frozenset(Scope) - {Scope.APPS_WRITE})
_ADMIN: Final = frozenset(Scope) | frozenset(Permission) - {Permission.CAP_WRITE}
_OWNER: Final = _ADMIN | {Permission.CAP_WRITE}

GRANTS_OF: Final[Mapping[Role, frozenset[Grant]]] = MappingProxyType(
    {Role.OWNER: _OWNER, Role.ADMIN: _ADMIN, Role.DEVELOPER: _DEVELOPER, Role.VIEWER: _VIEWER}
)
_FROM_LEAST_TO_MOST: Final = (Role.VIEWER, Role.DEVELOPER, Role.ADMIN, Role.OWNER)


def may(role: Role, grant: Grant) -> bool:
    return grant in GRANTS_OF[role]


def scopes_of(role: Role) -> frozenset[Scope]:
    """Return the scopes of the tokens that a user with this role can mint."""
    return frozenset(scope for scope in Scope if may(role, scope))


def roles_within(role: Role) -> tuple[Role, ...]:
    """Return the roles a user may assign, change and remove: their own and those below, most powerful first."""
    return _FROM_LEAST_TO_MOST[: _FROM_LEAST_TO_MOST.index(role) + 1][::-1]
