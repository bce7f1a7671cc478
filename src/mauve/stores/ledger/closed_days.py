"""Closed days, in the ledger's database: small, and read as often as money totals."""

from collections.abc import Collection, Iterable
from datetime import date, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa

from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.stores.ledger.schema import closed_days, day_users
from mauve.stores.sql.database import Database, SqlStore
from mauve.stores.sql.dialects import upsert


class DayUsers(NamedTuple):
    """The distinct users of a project on a day, for one kind of activity."""

    project: str
    seen: Activity
    day: str  # YYYY-MM-DD
    users: int


_ROWS_PER_STATEMENT: Final = 10_000  # A server ends a transaction that is idle for seconds.
_BEFORE_ALL: Final = date(1969, 12, 31)  # older than any event: no day is closed


class ClosedDays:
    """The loader's store of closed days: all days up to one are closed, and none after it. Used by one thread.

    - `close` and `reopen` are atomic, and durable when they return.
    - A day is reopened before anything is loaded into it, so that no outdated count is read.
    - `close` does nothing if another process has reopened days since the last `through` call: the counts may lack what
      that process has loaded.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: int | None = None  # the generation at the last `through` call

    def through(self) -> date | None:
        """Return the last closed day, or None."""
        with self._database.reading() as tx:
            self._asked = _generation(tx)
            return _through(tx)

    def close(self, through: date, users: Iterable[DayUsers]) -> None:
        """Close all days up to and including this one, with the users of those that were open."""
        rows = [each._asdict() for each in users]
        with self._database.writing() as tx:
            if self._asked is not None and not _is_current(tx, self._asked):
                return
            _move(tx, through)
            for start in range(0, len(rows), _ROWS_PER_STATEMENT):
                tx.execute(sa.insert(day_users), rows[start : start + _ROWS_PER_STATEMENT])
        self._asked = None

    def reopen(self, first: date) -> None:
        """Reopen this day and all later ones, if they were closed."""
        with self._database.writing() as tx:
            reopen_days(tx, first)


class ClosedDaysReader(SqlStore):
    def through(self) -> date | None:
        with self._database.reading() as tx:
            return _through(tx)

    def users(
        self, projects: Collection[str], seen: Activity, window: Window
    ) -> tuple[date | None, list[tuple[str, str, int]]]:
        """Return the last closed day, and (project, day, users) of closed days in the window, by project and day.

        Both are read in one transaction. Days without users are omitted.
        """
        query = sa.select(day_users.c.project, day_users.c.day, day_users.c.users).where(
            day_users.c.project.in_(projects),
            day_users.c.seen == seen,
            day_users.c.day.between(window.first.isoformat(), window.last.isoformat()),
        )
        with self._database.reading() as tx:
            return _through(tx), sorted((project, day, users) for project, day, users in tx.execute(query))


def reopen_days(tx: sa.Connection, first: date) -> None:
    """Reopen days within the caller's transaction. Counts being computed will not be stored."""
    _create_row(tx)  # A count may be computed before any day was closed.
    tx.execute(sa.update(closed_days).values(generation=closed_days.c.generation + 1))  # locks the row
    through = _through(tx)
    if through is not None and first <= through:
        tx.execute(sa.delete(day_users).where(day_users.c.day >= first.isoformat()))
        _move(tx, first - timedelta(days=1))


def _create_row(tx: sa.Connection) -> None:
    """Create the row if it is missing: only an existing row can be locked."""
    insert = upsert(tx.dialect.name, closed_days).values(only=1, through=_BEFORE_ALL.isoformat(), generation=0)
    tx.execute(insert.on_conflict_do_nothing(index_elements=[closed_days.c.only]))


def _generation(tx: sa.Connection) -> int:
    """Return how many times days were reopened."""
    return tx.execute(sa.select(closed_days.c.generation)).scalar_one_or_none() or 0


def _is_current(tx: sa.Connection, asked: int) -> bool:
    """Return whether no days were reopened since. The row stays locked until the transaction ends."""
    _create_row(tx)
    found: int = tx.execute(sa.select(closed_days.c.generation).with_for_update()).scalar_one()
    return found == asked


def _through(tx: sa.Connection) -> date | None:
    day = tx.execute(sa.select(closed_days.c.through)).scalar_one_or_none()
    return None if day is None or day <= _BEFORE_ALL.isoformat() else date.fromisoformat(day)


def _move(tx: sa.Connection, through: date) -> None:
    _create_row(tx)
    tx.execute(sa.update(closed_days).values(through=through.isoformat()))
