"""The ledger's counts: usage, ingest stats, and the first event of each project.

Writes run within the caller's transaction, in sorted order so that PostgreSQL transactions cannot deadlock.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Final

import sqlalchemy as sa

from mauve.core.accepted import OrgPeriod
from mauve.core.batch import HEADER_BYTES_MAX, MalformedBatchError, unpacked
from mauve.core.window import Window, month_starts_between, period_of
from mauve.stores.ingest_stats import DAYS_KEPT, KEY_USED, IngestCount, IngestStats
from mauve.stores.ledger.schema import arrivals, event_outbox, event_outbox_head, first_seen, load_positions, usage
from mauve.stores.limits.accepted import CountedUsage, PendingEvents
from mauve.stores.log import MIXED_STREAM
from mauve.stores.sql.database import SqlStore
from mauve.stores.sql.dialects import upsert, upsert_adding, upsert_counts

_KEY: Final = f"{KEY_USED}:"  # Ingest stats are in the table `arrivals`.
_IS_KEY_USE: Final = arrivals.c.word.startswith(_KEY, autoescape=True)


def add_ingest_stats(tx: sa.Connection, noted: Sequence[IngestStats]) -> None:
    """Add to the counts of their days, in sorted order, and delete old days."""
    rows = [
        {"project": project, "day": day, "word": word, "count": count, "last_at": last_at}
        for day, last_at, counts in noted
        for (project, word), count in counts.items()
    ]
    if not rows:
        return
    for row in sorted(rows, key=lambda row: (row["project"], row["day"], row["word"])):
        tx.execute(upsert_counts(tx.dialect.name, arrivals), row)
    newest = date.fromisoformat(max(each.day for each in noted))
    tx.execute(sa.delete(arrivals).where(arrivals.c.day <= (newest - timedelta(days=DAYS_KEPT)).isoformat()))


class IngestStatsReader(SqlStore):
    def counts(self, project: str, window: Window) -> list[IngestCount]:
        """Return the count and last time of each label in these days, by label, without key uses."""
        query = (
            sa.select(arrivals.c.word, sa.func.sum(arrivals.c.count), sa.func.max(arrivals.c.last_at))
            .where(
                arrivals.c.project == project,
                arrivals.c.day.between(window.first.isoformat(), window.last.isoformat()),
                ~_IS_KEY_USE,
            )
            .group_by(arrivals.c.word)
        )
        return sorted(IngestCount(word, int(count), last_at) for word, count, last_at in self._rows(query))

    def key_uses(self, since: int, now: int) -> dict[str, int]:
        """Return the last use of each key used after a moment, by key id; all in epoch ms.

        A use may be later than now if a clock was fast.
        """
        months = [day.isoformat() for day in month_starts_between(since, now)]  # far fewer rows than by day
        query = (
            sa.select(arrivals.c.word, sa.func.max(arrivals.c.last_at))
            .where(arrivals.c.day.in_(months), _IS_KEY_USE, arrivals.c.last_at > since)
            .group_by(arrivals.c.word)
        )
        return {word.removeprefix(_KEY): last_at for word, last_at in self._rows(query)}


_ORGANIZATIONS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 256


class UsageReader(SqlStore):
    """Reads usage.

    - `counted` reads in one transaction: an event is either in `events` or after `positions`, never both.
    - `mixed` holds the given organizations' records after the position and above `mixed_after`. Continuing from
      `mixed_through` misses none.
    """

    def events(self, org_period: OrgPeriod) -> int:
        with self._database.reading() as tx:
            return dict(_events(tx, org_period.period, [org_period.org_id])).get(org_period.org_id, 0)

    def counted(self, period: str, org_ids: Collection[str], mixed_after: int) -> CountedUsage:
        with self._database.reading() as tx:
            events = dict(_events(tx, period, sorted(org_ids)))
            positions = dict(tx.execute(sa.select(load_positions.c.stream, load_positions.c.number)).all())
            after = max(mixed_after, positions.get(MIXED_STREAM, 0))
            mixed = [waiting for waiting in _mixed(tx, after) if waiting.org_period.org_id in org_ids]
            return CountedUsage(period, events, positions, mixed, _last_mixed(tx))


def _events(tx: sa.Connection, period: str, org_ids: list[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(org_ids), _ORGANIZATIONS_AT_ONCE):
        some = org_ids[start : start + _ORGANIZATIONS_AT_ONCE]
        query = sa.select(usage.c.org_id, usage.c.events).where(usage.c.period == period, usage.c.org_id.in_(some))
        yield from ((org_id, events) for org_id, events in tx.execute(query))


def _mixed(tx: sa.Connection, after: int) -> Iterator[PendingEvents]:
    """Read only the headers of the pending records."""
    header = sa.func.substr(event_outbox.c.record, 1, HEADER_BYTES_MAX)
    number = event_outbox.c.number
    query = sa.select(number, header).where(number > after).order_by(number)
    with tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows:
        yield from _waiting_from((number, header) for number, header in rows)


def _last_mixed(tx: sa.Connection) -> int:
    return int(tx.execute(sa.select(event_outbox_head.c.number)).scalar_one())


def _waiting_from(rows: Iterable[tuple[int, bytes]]) -> Iterator[PendingEvents]:
    for number, header in rows:
        try:
            batch = unpacked(header)
        except MalformedBatchError:
            continue  # Loading will not count it, either.
        yield PendingEvents(number, OrgPeriod(batch.org_id, period_of(batch.received_at)), batch.event_count)


def add_usage(tx: sa.Connection, events_by_org_and_period: Mapping[tuple[str, str], int]) -> None:
    rows = [
        {"org_id": org_id, "period": period, "events": events}
        for (org_id, period), events in sorted(events_by_org_and_period.items())
    ]
    if rows:
        tx.execute(upsert_adding(tx.dialect.name, usage), rows)


def record_first_seen(tx: sa.Connection, moment_by_project: Mapping[str, int]) -> None:
    """Record when each project was first seen; mark new projects for the catalog.

    Streams are loaded and payments recorded in parallel, so an earlier event may be recorded later.
    """
    rows = [{"project": project, "at": at, "noted": False} for project, at in sorted(moment_by_project.items())]
    if rows:
        tx.execute(_keep_earlier(tx.dialect.name), rows)


@cache
def _keep_earlier(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, first_seen)
    return insert.on_conflict_do_update(
        index_elements=[first_seen.c.project],
        set_={"at": insert.excluded.at, "noted": insert.excluded.noted},
        where=insert.excluded.at < first_seen.c.at,
    )
