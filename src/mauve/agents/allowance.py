"""What a control token may read, and how much of it is left: the answer of `/mcp/allowance`."""

from datetime import date

import msgspec

from mauve.access.read_limits import limits_of
from mauve.core.credential import Scope
from mauve.core.times import utc_instant
from mauve.core.window import period_ends_at, today_at
from mauve.query import QueryParts
from mauve.stores.published import PublishedToken


class Share(msgspec.Struct, frozen=True):
    used: int
    limit: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The shares are those of the organization; a token without `metrics:read` sees none."""

    scopes: tuple[str, ...]
    today: date  # UTC, on the clock of the service
    cached_s: int  # how old an answer from the cache may be
    resets_at: str
    queries: Share | None = None  # of this billing period
    raw_scans: Share | None = None  # likewise
    reads: Share | None = None  # of this minute

    @property
    def queries_left(self) -> int:
        return 0 if self.queries is None else self.queries.left

    @property
    def raw_scans_left(self) -> int:
        return 0 if self.raw_scans is None else min(self.raw_scans.left, self.queries_left)


def allowance_of(parts: QueryParts, token: PublishedToken, now_ms: int) -> Allowance:
    """Read the meter without spending anything. Call it in a thread."""
    bare = Allowance(
        scopes=tuple(sorted(token.scopes)),
        today=today_at(now_ms),
        cached_s=parts.max_age_s,
        resets_at=utc_instant(period_ends_at(now_ms)),
    )
    if Scope.METRICS_READ not in token.scopes:
        return bare
    usage = parts.meter.usage(token.org_id, now_ms)
    limits = limits_of(parts.keyring.organizations.get(token.org_id))
    return msgspec.structs.replace(
        bare,
        queries=Share(usage.queries, limits.queries),
        raw_scans=Share(usage.raw_scans, limits.raw_scans),
        reads=Share(usage.reads, limits.reads_per_minute),
    )
