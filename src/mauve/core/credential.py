"""Credentials: data-plane keys of an app and control tokens of an organization."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mauve.core.app import Environment

OPERATOR: Final = "operator"
"""The minter of everything minted at the command line. All other minters are user ids or control token ids."""


class KeyKind(StrEnum):
    """What a data-plane key may do: everything for one app, or behavioral events only."""

    SERVER = "sk"
    PUBLISHABLE = "pk"


@dataclass(frozen=True, slots=True)
class AppKey:
    key_id: str
    app_id: str
    public_id: str  # of the project it writes to
    environment: Environment
    kind: KeyKind
    masked: str
    revoked: bool
    mirrored_at: int | None
    created_at: int
    minted_by: str | None = None  # a user, a control token or the operator; None: not recorded
    name: str | None = None
    last_used_at: int | None = None  # to the minute


class Scope(StrEnum):
    """What a control token may do. No scope implies another."""

    APPS_READ = "apps:read"
    APPS_WRITE = "apps:write"
    KEYS_READ = "keys:read"
    KEYS_WRITE = "keys:write"
    WEBHOOKS_WRITE = "webhooks:write"
    METRICS_READ = "metrics:read"


@dataclass(frozen=True, slots=True)
class ControlToken:
    token_id: str
    org_id: str
    name: str
    scopes: frozenset[Scope]
    revoked: bool
    created_at: int
    minted_by: str = OPERATOR  # or a user
    last_used_at: int | None = None  # to the minute
