"""Credentials: data-plane keys of an app and control tokens of an organization."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mauve.core.app import Environment

OPERATOR: Final = "operator"
"""Who minted what was minted at the command line. Everybody else who mints has an id: a user or a control token."""


class KeyKind(StrEnum):
    """What a data-plane key may do: everything for one app, or behavioural events only."""

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
    minted_by: str | None = None  # a user, a control token or the operator; None: nobody noted it


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
