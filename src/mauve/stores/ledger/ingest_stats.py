"""Ingest stats. Writes happen within the caller's transaction. The table is still called `arrivals`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa

from mauve.core.window import Window, month_starts_between
from mauve.stores.ledger.schema import arrivals
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert_counts

DAYS_KEPT: Final = 92

ACCEPTED: Final = "accepted"  # an event or payment
ACCEPTED_OBJECT: Final = "accepted_object"  # a subscription
DUPLICATE: Final = "duplicate"  # a payment that was already recorded
REPEAT: Final = "repeat"  # an event with a repeated id: stored, not counted
SUPPRESSED: Final = "suppressed"  # a repeat from a server key whose id counts for a publishable key
REJECTED: Final = "rejected"  # an item; a colon and the rejection code follow
REFUSED: Final = "refused"  # a whole request; a colon and the problem code follow
# Accepted items that deserve a look.
MOVED_PAST: Final = "moved_past"  # before the window; a colon and the claimed day, or long ago the month, follow
MOVED_PAST_EARLIER: Final = f"{MOVED_PAST}:earlier"  # before the months that are counted one by one
MOVED_FUTURE: Final = "moved_future"  # a time after the window
AT_IN_SECONDS: Final = "at_in_seconds"  # `at` looks like epoch seconds
TIME_MISNAMED: Final = "time_misnamed"  # no `at`, but a field that is ignored; a colon and its name follow
STATUS_RESEMBLES: Final = "status_resembles"  # a misspelled status; a colon and the known one follow
SIGNUP_RESEMBLES: Final = "signup_resembles"  # a name that is almost user_signup

KEY_USED: Final = "key"  # a colon and the key's id follow; counted by month, to take few rows

ProjectAndWord = tuple[str, str]


class IngestStats(NamedTuple):
    """Counts of one day, to add to the stored ones."""

    day: str  # YYYY-MM-DD
    last_at: int  # epoch ms: no item is later
    counts: Mapping[ProjectAndWord, int]


@dataclass(frozen=True, slots=True, order=True)
class IngestCount:
    word: str
    count: int
    last_at: int


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
        """Return the count of each label in these days and when it was last counted, by label; no uses of keys."""
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

        A use is later than now if a clock ran ahead.
        """
        months = [day.isoformat() for day in month_starts_between(since, now)]  # Few rows, unlike those of all days.
        query = (
            sa.select(arrivals.c.word, sa.func.max(arrivals.c.last_at))
            .where(arrivals.c.day.in_(months), _IS_KEY_USE, arrivals.c.last_at > since)
            .group_by(arrivals.c.word)
        )
        with self._database.reading() as tx:
            return {word.removeprefix(_KEY): last_at for word, last_at in tx.execute(query)}
