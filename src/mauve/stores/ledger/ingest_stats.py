"""Ingest stats. Writes happen within the caller's transaction. The table is still called `arrivals`."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import sqlalchemy as sa

from mauve.core.window import Window, month_starts_between
from mauve.stores.ingest_stats import DAYS_KEPT, KEY_USED, IngestCount, IngestStats
from mauve.stores.ledger.schema import arrivals
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert_counts

_KEY: Final = f"{KEY_USED}:"
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


class IngestStatsReader:
    def __init__(self, database: Database) -> None:
        self._database = database

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
        with self._database.reading() as tx:
            return sorted(IngestCount(word, int(count), last_at) for word, count, last_at in tx.execute(query))

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
        with self._database.reading() as tx:
            return {word.removeprefix(_KEY): last_at for word, last_at in tx.execute(query)}
