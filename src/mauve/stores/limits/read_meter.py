"""How much an organization has read: in the last minute, and of its allowances for the billing period."""

from enum import StrEnum
from typing import Final, NamedTuple

import sqlalchemy as sa

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.window import period_ends_at, period_of
from mauve.stores.catalog.schema import reads, spent
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert

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


class ReadMeter:
    """Counts reads in the catalog's database, for all processes and credentials of an organization together.

    - `take` checks and spends in one transaction: of two reads that race for the last one, one gets it. It locks the
      organization's row of the billing period.
    - A refused read spends nothing.
    - Counts survive the process. A commit does not wait for the disk: a power cut may lose the last seconds.
    - Setting the clock back or forward locks no organization out: reads counted more than a few seconds in the future
      no longer count, and a billing period that returns continues where it was.
    - Machines that share a meter share its clock, whatever they give as `now_ms`.
    - Expired minutes and periods are deleted.
    - Raises `StoreUnavailableError` if nothing can be counted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pruned_at = 0

    def take(self, org_id: str, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
        self._prune(now_ms)
        with self._database.writing(is_expendable=True) as tx:
            now_ms = self._database.time_of(tx, now_ms)
            queries, raw_scans = _locked_spending(tx, org_id, now_ms)
            # Reads that have expired must not count again if the clock is set back.
            tx.execute(sa.delete(reads).where(reads.c.org_id == org_id, sa.not_(_is_in_window(now_ms))))
            usage = _usage(tx, org_id, now_ms, queries, raw_scans)
            refusal = refusal_of(usage, cost, limits, now_ms)
            if refusal is None:
                _spend(tx, org_id, cost, now_ms)
            return refusal

    def usage(self, org_id: str, now_ms: int) -> Usage:
        """Return an organization's usage without spending anything."""
        with self._database.reading() as tx:
            now_ms = self._database.time_of(tx, now_ms)
            of_period = (spent.c.org_id == org_id) & (spent.c.period == period_of(now_ms))
            found = tx.execute(sa.select(spent.c.queries, spent.c.raw_scans).where(of_period)).one_or_none()
            return _usage(tx, org_id, now_ms, *(found or (0, 0)))

    def close(self) -> None:
        self._database.close()

    def _prune(self, now_ms: int) -> None:
        """Delete, once a minute, the expired minutes and billing periods of all organizations."""
        if abs(now_ms - self._pruned_at) < WINDOW_MS:
            return
        self._pruned_at = now_ms
        with self._database.writing(is_expendable=True) as tx:
            now_ms = self._database.time_of(tx, now_ms)
            tx.execute(sa.delete(reads).where(sa.not_(_is_in_window(now_ms))))
            tx.execute(sa.delete(spent).where(sa.not_(spent.c.period.between(*periods_kept(now_ms)))))


def _is_in_window(now_ms: int) -> sa.ColumnElement[bool]:
    """Later reads are from another clock."""
    return (reads.c.at > now_ms - WINDOW_MS) & (reads.c.at <= now_ms + CLOCK_SLACK_MS)


def _locked_spending(tx: sa.Connection, org_id: str, now_ms: int) -> tuple[int, int]:
    """Return the queries and raw scans of the period; lock them until the transaction ends."""
    row = {"org_id": org_id, "period": period_of(now_ms), "queries": 0, "raw_scans": 0}
    insert = upsert(tx.dialect.name, spent).values(row)
    lock = insert.on_conflict_do_update(
        index_elements=[spent.c.org_id, spent.c.period], set_={"queries": spent.c.queries}
    )
    queries, raw_scans = tx.execute(lock.returning(spent.c.queries, spent.c.raw_scans)).one()
    return queries, raw_scans


def _usage(tx: sa.Connection, org_id: str, now_ms: int, queries: int, raw_scans: int) -> Usage:
    sums = sa.select(sa.func.coalesce(sa.func.sum(reads.c.reads), 0), sa.func.min(reads.c.at))
    count, oldest_read_at = tx.execute(sums.where(reads.c.org_id == org_id, _is_in_window(now_ms))).one()
    return Usage(int(count), oldest_read_at, queries, raw_scans)


def _spend(tx: sa.Connection, org_id: str, cost: ReadCost, now_ms: int) -> None:
    insert = upsert(tx.dialect.name, reads).values(org_id=org_id, at=now_ms, reads=1)
    one_more = {"reads": reads.c.reads + 1}
    tx.execute(insert.on_conflict_do_update(index_elements=[reads.c.org_id, reads.c.at], set_=one_more))
    if any(cost):
        of_period = (spent.c.org_id == org_id) & (spent.c.period == period_of(now_ms))
        more = {"queries": spent.c.queries + cost.queries, "raw_scans": spent.c.raw_scans + cost.raw_scans}
        tx.execute(sa.update(spent).where(of_period).values(more))
