"""An organization: the owner of apps, whether it may ingest, and how much it may use."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Standing(StrEnum):
    """Whether an organization may ingest."""

    LIVE = "live"
    SUSPENDED = "suspended"


def standing_at(standing: Standing, grace_ends_at: int | None, now_ms: int) -> Standing:
    """Return the standing at a given time. Expired grace suspends without further action."""
    if grace_ends_at is not None and now_ms >= grace_ends_at:
        return Standing.SUSPENDED
    return standing


@dataclass(frozen=True, slots=True)
class Limits:
    """What an organization may use, set by the operator."""

    event_cap: int | None = None  # events per billing period; None: no cap
    reads_per_minute: int = 600
    agent_queries: int = 100_000  # per billing period
    raw_scans: int = 10_000  # per billing period


@dataclass(frozen=True, slots=True)
class Quotas:
    """How many of each thing an organization may have, from the settings."""

    apps: int = 1_000
    keys_per_app: int = 100  # active; with revoked ones, which stay listed, `IN_ALL` times as many
    keys: int = 5_000  # of all its apps, likewise
    tokens: int = 200  # likewise
    members: int = 500  # invited ones included


IN_ALL: Final = 10
"""The factor by which these limits grow when revoked keys and tokens are counted too."""


@dataclass(frozen=True, slots=True)
class Organization:
    org_id: str
    name: str
    standing: Standing  # as last set; see `standing_at` for the current one
    grace_ends_at: int | None  # an unpaid invoice suspends from then on
    limits: Limits
    created_at: int

    def standing_at(self, now_ms: int) -> Standing:
        return standing_at(self.standing, self.grace_ends_at, now_ms)
