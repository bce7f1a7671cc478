"""The nouns of the product as values: organizations, apps, projects, keys, tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OPERATOR: Final = "operator"
"""Who minted what was minted at the command line. Everybody else who mints has an id: a user or a control token."""


class Environment(StrEnum):
    """Live data, or a rehearsal of it. The two never mix."""

    LIVE = "live"
    TEST = "test"


class Ownership(StrEnum):
    MINE = "mine"
    CLIENT_OPERATED = "client_operated"


class AppType(StrEnum):
    SAAS = "saas"
    LIBRARY = "library"
    DESKTOP = "desktop"
    OTHER = "other"


class KeyKind(StrEnum):
    """What a data-plane key may do: everything for one app, or behavioural events only."""

    SERVER = "sk"
    PUBLISHABLE = "pk"


class Provider(StrEnum):
    """The billing providers whose webhooks we take."""

    BILLER_A = "biller_a"
    BILLER_B = "biller_b"


BILLER_NAMES: Final[Mapping[str, str]] = {
    Provider.BILLER_A: "Stripe (biller_a)",
    Provider.BILLER_B: "Polar (biller_b)",
}
"""What people call the billers, beside the words that stand for them in paths and options."""


class Standing(StrEnum):
    """Whether an organization may ingest."""

    LIVE = "live"
    SUSPENDED = "suspended"


def standing_at(standing: Standing, grace_ends_at: int | None, now_ms: int) -> Standing:
    """Tell the standing at a moment: grace that has run out suspends without anyone doing anything."""
    if grace_ends_at is not None and now_ms >= grace_ends_at:
        return Standing.SUSPENDED
    return standing


@dataclass(frozen=True, slots=True)
class Limits:
    """What an organization may use; the operator sets it."""

    event_cap: int | None = None  # events per billing period; None: no cap
    reads_per_minute: int = 600
    agent_queries: int = 100_000  # per billing period
    raw_scans: int = 10_000  # per billing period


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many of each thing any organization may have; the settings say so."""

    apps: int = 1_000
    keys_per_app: int = 100  # that work; with revoked ones, which stay listed, `IN_ALL` times as many
    keys: int = 5_000  # of all its apps, likewise
    tokens: int = 200  # likewise
    members: int = 500  # invited ones included


IN_ALL: Final = 10
"""How many times as many keys and tokens there may be when revoked ones are counted, too."""


@dataclass(frozen=True, slots=True)
class Organization:
    org_id: str
    name: str
    standing: Standing  # as last set; ask `standing_at` what holds now
    grace_ends_at: int | None  # an unpaid invoice suspends from this moment on
    limits: Limits
    created_at: int

    def standing_at(self, now_ms: int) -> Standing:
        return standing_at(self.standing, self.grace_ends_at, now_ms)


@dataclass(frozen=True, slots=True)
class App:
    app_id: str
    org_id: str
    public_id: str
    test_public_id: str | None
    name: str
    ownership: Ownership
    type: AppType
    first_event_at: int | None
    has_biller_a_webhook: bool
    has_biller_b_webhook: bool
    created_at: int


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
    """A browser in which somebody is signed in."""

    session_id: str
    user_id: str
    agent: str  # what the browser calls itself
    created_at: int
    seen_at: int  # to the minute
    expires_at: int  # whatever happens
