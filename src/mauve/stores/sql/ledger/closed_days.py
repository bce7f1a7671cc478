"""Closed days, in the ledger's database: small, and read as often as totals of money."""

from collections.abc import Collection, Iterable
from datetime import date, timedelta

import sqlalchemy as sa

from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.stores.closed_days import DayUsers
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert
from mauve.stores.sql.ledger.schema import closed_days, day_users


class SqlClosedDays:
    def __init__(self, database: Database) -> None:
        self._database = database

    def through(self) -> date | None:
        with self._database.reading() as tx:
            return _through(tx)

    def close(self, through: date, users: Iterable[DayUsers]) -> None:
        rows = [each._asdict() for each in users]
        with self._database.writing() as tx:
            _move(tx, through)
            if rows:
                tx.execute(sa.insert(day_users), rows)

    def reopen(self, first: date) -> None:
        with self._database.writing() as tx:
            through = _through(tx)
            if through is not None and first <= through:
                tx.execute(sa.delete(day_users).where(day_users.c.day >= first.isoformat()))
                _move(tx, first - timedelta(days=1))


class SqlClosedDaysReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def through(self) -> date | None:
        with self._database.reading() as tx:
            return _through(tx)

    def users(
        self, projects: Collection[str], seen: Activity, window: Window
    ) -> tuple[date | None, list[tuple[str, str, int]]]:
        query = sa.select(day_users.c.project, day_users.c.day, day_users.c.users).where(
            day_users.c.project.in_(projects),
            day_users.c.seen == seen,
            day_users.c.day.between(window.first.isoformat(), window.last.isoformat()),
        )
        with self._database.reading() as tx:
            return _through(tx), sorted((project, day, users) for project, day, users in tx.execute(query))


def _through(tx: sa.Connection) -> date | None:
    day = tx.execute(sa.select(closed_days.c.through)).scalar_one_or_none()
    return None if day is None else date.fromisoformat(day)


def _move(tx: sa.Connection, through: date) -> None:
    insert = upsert(tx.dialect.name, closed_days).values(only=1, through=through.isoformat())
    moved = {"through": insert.excluded.through}
    tx.execute(insert.on_conflict_do_update(index_elements=[closed_days.c.only], set_=moved))
