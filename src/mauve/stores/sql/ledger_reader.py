"""The query plane's side of the ledger."""

from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa

from mauve.core.subscriptions import MrrStep
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger_schema import day_totals, subscription_versions, subscriptions

# SQLite fails when a sum leaves 64 bits, so the halves are summed apart: exact for two billion subscriptions.
_HALF: Final = 2**32
_MRR: Final = (
    sa.select(
        subscriptions.c.currency,
        sa.func.sum(subscriptions.c.mrr // _HALF).label("high"),
        sa.func.sum(subscriptions.c.mrr % _HALF).label("low"),
    )
    .where(subscriptions.c.project == sa.bindparam("of_project"), subscriptions.c.status == "active")
    .group_by(subscriptions.c.currency)
)
_versions: Final = subscription_versions.c
_ROWS_AT_ONCE: Final = 1_000
_STEPS: Final = (
    sa.select(
        _versions.key,
        _versions.at,
        _versions.currency,
        sa.case((_versions.status == "active", _versions.mrr)),  # else NULL
    )
    .where(_versions.project == sa.bindparam("of_project"), _versions.at < sa.bindparam("before"))
    .order_by(
        _versions.key, _versions.at, _versions.rank, _versions.sequence
    )  # as the index has them: nothing is sorted
    .execution_options(yield_per=_ROWS_AT_ONCE)
)


class SqlLedgerReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def day_totals(self, project: str, first_day: str, last_day: str, earned: bool) -> list[tuple[str, str, int]]:  # noqa: FBT001 - a stored fact, not a switch
        query = sa.select(day_totals.c.day, day_totals.c.currency, day_totals.c.total).where(
            day_totals.c.project == project,
            day_totals.c.day.between(first_day, last_day),
            day_totals.c.earned.is_(earned),
        )
        with self._database.reading() as tx:
            return sorted((day, currency, total) for day, currency, total in tx.execute(query))

    def current_mrr(self, project: str) -> list[tuple[str, int]]:
        with self._database.reading() as tx:
            rows = tx.execute(_MRR, {"of_project": project})
            return sorted((currency, int(high) * _HALF + int(low)) for currency, high, low in rows)

    def mrr_steps(self, project: str, before: int) -> Iterator[MrrStep]:
        with self._database.reading() as tx:
            yield from map(MrrStep._make, tx.execute(_STEPS, {"of_project": project, "before": before}))
