"""A member of an organization, their role, sessions and e-mail address."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a person may do in an organization."""

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
    """A browser in which a user is signed in."""

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
