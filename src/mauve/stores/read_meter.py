"""How much an organization has read: the last minute, and the allowances of the billing period."""

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from mauve.core.window import period_ends_at

WINDOW_MS: Final = 60_000


class ReadCost(NamedTuple):
    """What one read spends of the allowances, beside its place in the minute."""

    queries: int = 0
    raw_scans: int = 0


class ReadLimits(NamedTuple):
    reads_per_minute: int
    queries: int  # per billing period
    raw_scans: int  # per billing period, out of the queries


class Usage(NamedTuple):
    """What stands against an organization at a moment."""

    reads: int  # in the last minute
    oldest_read_at: int | None  # of those
    queries: int  # in this billing period
    raw_scans: int  # in this billing period


class Throttle(StrEnum):
    """Which limit refuses a read, by the name that clients branch on."""

    RATE_LIMIT = "rate_limit"
    QUERIES = "allowance:queries"
    RAW_SCANS = "allowance:raw_scans"


class Throttled(NamedTuple):
    throttle: Throttle
    lifts_at: int  # epoch milliseconds


def refusal_of(usage: Usage, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
    """Tell which limit, if any, the read would exceed: the minute before the queries before the raw scans."""
    if usage.reads >= limits.reads_per_minute:
        oldest_read_at = now_ms if usage.oldest_read_at is None else usage.oldest_read_at
        return Throttled(Throttle.RATE_LIMIT, oldest_read_at + WINDOW_MS)
    if cost.queries and usage.queries + cost.queries > limits.queries:
        return Throttled(Throttle.QUERIES, period_ends_at(now_ms))
    if cost.raw_scans and usage.raw_scans + cost.raw_scans > limits.raw_scans:
        return Throttled(Throttle.RAW_SCANS, period_ends_at(now_ms))
    return None


class ReadMeter(Protocol):
    """Where reads are counted, for all processes and credentials of an organization together.

    - `take` looks and spends in one transaction: of two that race for the last place one gets it.
    - A refused read spends nothing: neither a place in the minute nor an allowance.
    - What was spent outlives the process.
    - A clock that is set, back or forward, locks nobody out: what was counted more than some seconds in the future
      no longer counts, and a billing period that comes again goes on where it was.
    - Minutes and periods that are over are forgotten.
    - Raises `StoreUnavailableError` when nothing can be counted.
    """

    def take(self, org_id: str, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
        """Spend what a read costs, or tell why it is refused."""
        ...

    def usage(self, org_id: str, now_ms: int) -> Usage:
        """Tell what stands against an organization, without spending anything."""
        ...

    def close(self) -> None: ...
