"""How much an organization has read: in the last minute, and of its allowances for the billing period."""

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from mauve.core.window import period_ends_at, period_of

WINDOW_MS: Final = 60_000
_LONGER_THAN_A_MONTH_MS: Final = 32 * 24 * 3600 * 1000


class ReadCost(NamedTuple):
    """What one read costs, in addition to one read of the rate limit."""

    queries: int = 0
    raw_scans: int = 0


class ReadLimits(NamedTuple):
    reads_per_minute: int
    queries: int  # per billing period
    raw_scans: int  # per billing period, out of the queries


class Usage(NamedTuple):
    """An organization's usage at a point in time."""

    reads: int  # in the last minute
    oldest_read_at: int | None  # of those
    queries: int  # in this billing period
    raw_scans: int  # in this billing period


class Throttle(StrEnum):
    """Which limit refused a read, by the name that clients match on."""

    RATE_LIMIT = "rate_limit"
    QUERIES = "allowance:queries"
    RAW_SCANS = "allowance:raw_scans"


class Throttled(NamedTuple):
    throttle: Throttle
    lifts_at: int  # epoch milliseconds
    at: int  # now, on the clock of the meter


def refusal_of(usage: Usage, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
    """Return the limit that the read would exceed, if any: first the rate limit, then queries, then raw scans."""
    if usage.reads >= limits.reads_per_minute:
        oldest_read_at = now_ms if usage.oldest_read_at is None else usage.oldest_read_at
        return Throttled(Throttle.RATE_LIMIT, oldest_read_at + WINDOW_MS, now_ms)
    if cost.queries and usage.queries + cost.queries > limits.queries:
        return Throttled(Throttle.QUERIES, period_ends_at(now_ms), now_ms)
    if cost.raw_scans and usage.raw_scans + cost.raw_scans > limits.raw_scans:
        return Throttled(Throttle.RAW_SCANS, period_ends_at(now_ms), now_ms)
    return None


def periods_kept(now_ms: int) -> tuple[str, str]:
    """Return the previous and the next period: a clock that is some days off loses no count."""
    ends_at = period_ends_at(now_ms)
    return period_of(ends_at - _LONGER_THAN_A_MONTH_MS), period_of(ends_at)


class ReadMeter(Protocol):
    """Counts reads for all processes and credentials of an organization together.

    - `take` checks and spends in one transaction: of two reads that race for the last one, one gets it.
    - A refused read spends nothing.
    - Counts survive the process.
    - Setting the clock back or forward locks no organization out: reads counted more than a few seconds in the future
      no longer count, and a billing period that returns continues where it was.
    - Machines that share a meter share its clock, whatever they give as `now_ms`.
    - Expired minutes and periods are deleted.
    - Raises `StoreUnavailableError` if nothing can be counted.
    """

    def take(self, org_id: str, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
        """Spend what a read costs, or return why it is refused."""
        ...

    def usage(self, org_id: str, now_ms: int) -> Usage:
        """Return an organization's usage without spending anything."""
        ...

    def close(self) -> None: ...
