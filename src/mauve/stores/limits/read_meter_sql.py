"""The read meter in the catalog's database: exact for all machines that share it."""

import sqlalchemy as sa

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.window import period_of
from mauve.stores.catalog.schema import reads, spent
from mauve.stores.limits.read_meter import WINDOW_MS, ReadCost, ReadLimits, Throttled, Usage, periods_kept, refusal_of
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


class SqlReadMeter:
    """Reads of one organization take turns: each locks the organization's row of the billing period.

    A commit does not wait for the disk: a server that loses power may lose the counts of its last seconds.
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
