"""The query plane's side of the ledger."""

from collections.abc import Collection, Iterator
from typing import Final

import sqlalchemy as sa

from mauve.core.subscriptions import MrrStep
from mauve.core.window import Window
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger_schema import day_totals, subscription_versions, subscriptions

# SQLite fails when a sum leaves 64 bits, so the halves are summed apart: exact for two billion subscriptions.
_HALF: Final = 2**32
_of_projects: Final[sa.BindParameter[str]] = sa.bindparam("of_projects", expanding=True)
_MRR: Final = (
    sa.select(
        subscriptions.c.project,
        subscriptions.c.currency,
        sa.func.sum(subscriptions.c.mrr // _HALF).label("high"),
        sa.func.sum(subscriptions.c.mrr % _HALF).label("low"),
    )
    .where(subscriptions.c.project.in_(_of_projects), subscriptions.c.status == "active")
    .group_by(subscriptions.c.project, subscriptions.c.currency)
)
_versions: Final = subscription_versions.c
_ROWS_AT_ONCE: Final = 1_000
_STEPS: Final = (
    sa.select(
        _versions.project,
        _versions.key,
        _versions.at,
        _versions.currency,
        sa.case((_versions.status == "active", _versions.mrr)),  # else NULL
    )
    .where(_versions.project.in_(_of_projects), _versions.at < sa.bindparam("before"))
    # As the index has them: nothing is sorted.
    .order_by(_versions.project, _versions.key, _versions.at, _versions.rank, _versions.sequence)
    .execution_options(yield_per=_ROWS_AT_ONCE)
)


class SqlLedgerReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def ping(self) -> None:
        with self._database.reading() as tx:
            tx.execute(sa.select(day_totals.c.project).limit(1))

    def day_totals(
        self,
        projects: Collection[str],
        window: Window,
        earned: bool,  # noqa: FBT001 - a stored fact, not a switch
    ) -> list[tuple[str, str, str, int]]:
        totals = day_totals.c
        query = sa.select(totals.project, totals.day, totals.currency, totals.total).where(
            totals.project.in_(projects),
            totals.day.between(window.first.isoformat(), window.last.isoformat()),
            totals.earned.is_(earned),
        )
        with self._database.reading() as tx:
            rows = tx.execute(query)
            return sorted((project, day, currency, total) for project, day, currency, total in rows)

    def current_mrr(self, projects: Collection[str]) -> list[tuple[str, str, int]]:
        with self._database.reading() as tx:
            rows = tx.execute(_MRR, {"of_projects": list(projects)})
            return sorted((project, currency, int(high) * _HALF + int(low)) for project, currency, high, low in rows)

    def mrr_steps(self, projects: Collection[str], before: int) -> Iterator[MrrStep]:
        with self._database.reading() as tx:
            yield from map(MrrStep._make, tx.execute(_STEPS, {"of_projects": list(projects), "before": before}))
