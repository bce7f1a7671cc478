"""What tools read: the service's own API, over HTTP or in process, and how much of it the token may still read."""

from collections.abc import Callable
from datetime import date
from typing import Final, NamedTuple

import msgspec

from mauve.access.read_limits import limits_of
from mauve.core.credential import Scope
from mauve.core.times import utc_instant
from mauve.core.window import period_ends_at, today_at
from mauve.metrics.registry import METRICS
from mauve.query import QueryParts
from mauve.stores.published import PublishedToken

_ERROR_CHARACTERS_MAX: Final = 400
Row = dict[str, str | int]
Reserve = Callable[[int], None]


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


class Query(NamedTuple):
    """One `GET /v1/metrics/{metric}`."""

    project: str
    metric: str
    date_from: date | None = None
    date_to: date | None = None
    name: str | None = None

    @property
    def is_raw_scan(self) -> bool:
        return METRICS[self.metric].is_raw_scan


class Reading(NamedTuple):
    """One answer."""

    date_from: date
    date_to: date
    rows: list[Row]
    cache: str  # hit, miss, uncached or stale
    age_s: int | None  # None: not reported, as for a hit
    cut_at: int | None  # the number of rows, if the service left some out

    @property
    def is_spent(self) -> bool:
        """Return whether the read counted against the allowance."""
        return self.cache != "hit"


class ListedApp(msgspec.Struct, frozen=True):
    """The fields of an app that agents see."""

    public_id: str
    name: str
    type: str
    created_at: float
    first_event_at: int | None


class RefusedError(Exception):
    """The service did not answer the question. The message says what to do, and is cut where it repeats long input."""

    def __init__(
        self, message: str, *, stop_until: str | None = None, retry_after_s: int | None = None, spent: int = 0
    ) -> None:
        super().__init__(message[:_ERROR_CHARACTERS_MAX])
        self.stop_until = stop_until  # no read of this kind is served before
        self.retry_after_s = retry_after_s
        self.spent = spent  # queries that it may have cost

    @property
    def facts(self) -> dict[str, object]:
        """Return the refusal as an agent sees it."""
        found = {
            "error": str(self),
            "stop_until": self.stop_until,
            "retry_after_s": self.retry_after_s,
            "spent_max": self.spent or None,
        }
        return {name: value for name, value in found.items() if value is not None}
