"""The billers' deliveries and their counts. Writes happen within the caller's transaction."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

import sqlalchemy as sa

from mauve.stores.deliveries import DELIVERIES_KEPT, Delivery, Tally
from mauve.stores.ledger.schema import deliveries, delivery_tallies
from mauve.stores.sql.database import SqlStore, record_from
from mauve.stores.sql.dialects import upsert_counts

_OF_PROJECT: Final = deliveries.c.project == sa.bindparam("of_project")
_NEWEST_FIRST: Final = deliveries.c.sequence.desc()
_DROP_OLD: Final = sa.delete(deliveries).where(
    _OF_PROJECT,
    deliveries.c.sequence
    <= sa.select(deliveries.c.sequence)
    .where(_OF_PROJECT)
    .order_by(_NEWEST_FIRST)
    .offset(DELIVERIES_KEPT)
    .limit(1)
    .scalar_subquery(),
)


def record_deliveries(tx: sa.Connection, recorded: Sequence[Delivery]) -> None:
    """Store and count the deliveries, and delete the oldest above the limit."""
    if not recorded:
        return
    tx.execute(sa.insert(deliveries), [asdict(each) | {"warnings": " ".join(each.warnings)} for each in recorded])
    tx.execute(_DROP_OLD, [{"of_project": project} for project in sorted({each.project for each in recorded})])
    add_tallies(tx, [Tally(each.project, each.provider, word, 1, each.at) for each in recorded for word in each.words])


def add_tallies(tx: sa.Connection, tallies: Iterable[Tally]) -> None:
    """Add to the counts, in sorted order so that PostgreSQL transactions cannot deadlock."""
    counts: Counter[tuple[str, str, str]] = Counter()
    last: dict[tuple[str, str, str], int] = {}
    for tally in tallies:
        key = (tally.project, tally.provider, tally.word)
        counts[key] += tally.count
        last[key] = max(tally.last_at, last.get(key, tally.last_at))
    if counts:
        tx.execute(
            upsert_counts(tx.dialect.name, delivery_tallies),
            [asdict(Tally(*key, counts[key], last[key])) for key in sorted(counts)],
        )


class DeliveryReader(SqlStore):
    """A delivery is counted permanently, but kept only until its project has `DELIVERIES_KEPT` newer ones."""

    def recent(self, project: str) -> list[Delivery]:
        """Return the stored deliveries, newest first."""
        query = sa.select(deliveries).where(deliveries.c.project == project).order_by(_NEWEST_FIRST)
        with self._database.reading() as tx:
            return [
                record_from(row, Delivery, warnings=tuple(row.warnings.split()))
                for row in tx.execute(query.limit(DELIVERIES_KEPT))
            ]

    def tallies(self, project: str) -> list[Tally]:
        """Return the counts, by provider and label."""
        query = sa.select(delivery_tallies).where(delivery_tallies.c.project == project)
        return sorted(self._records(query, Tally), key=lambda tally: (tally.provider, tally.word))
