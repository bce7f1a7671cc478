"""The query plane's side of the ledger."""

from collections.abc import Collection, Generator
from typing import Final

import sqlalchemy as sa

from mauve.core.subscriptions import MrrChange
from mauve.core.window import Window
from mauve.stores.ledger import ReceivedPayment
from mauve.stores.ledger.mrr import changes_in, changes_until_now, totals_of
from mauve.stores.ledger.schema import day_totals, money_revisions, payments
from mauve.stores.sql.database import SqlStore

_ROWS_AT_ONCE: Final = 1_000


class LedgerReader(SqlStore):
    """The query plane's reader. Amounts are exact.

    Generators read in one transaction as they are consumed; closing one early ends the transaction.
    """

    def ping(self) -> None:
        """Return if the ledger is readable, else raise."""
        self._rows(sa.select(day_totals.c.project).limit(1))

    def day_totals(
        self,
        projects: Collection[str],
        window: Window,
        earned: bool,  # noqa: FBT001 - a stored value, not a switch
    ) -> Generator[tuple[str, str, str, int], None, None]:
        """Yield (project, day, currency, total) for days with payments, in this order, without buffering all."""
        totals = day_totals.c
        query = (
            sa.select(totals.project, totals.day, totals.currency, totals.total)
            .where(
                totals.project.in_(projects),
                totals.day.between(window.first.isoformat(), window.last.isoformat()),
                totals.earned.is_(earned),
            )
            .order_by(totals.project, totals.day, totals.currency)  # in key order: nothing is sorted
        )
        with (
            self._database.reading() as tx,
            tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows,
        ):
            yield from ((project, day, currency, total) for project, day, currency, total in rows)

    def current_mrr(self, projects: Collection[str]) -> list[tuple[str, str, int]]:
        """Return (project, currency, sum of mrr) of current rows with status `active`, in this order."""
        with self._database.reading() as tx:
            found = totals_of(tx, projects)
        return sorted(
            (project, currency, total.mrr)
            for project, totals in found.items()
            for currency, total in totals.items()
            if total.active
        )

    def mrr_changes(self, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
        """Yield the changes of MRR by project and day, without buffering all.

        The first day of the window includes all earlier changes; versions dated after the window are omitted.
        """
        with self._database.reading() as tx:
            yield from changes_in(tx, projects, window)

    def mrr_changes_until_now(self, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
        """Yield the same, with versions dated after the window on its last day."""
        with self._database.reading() as tx:
            yield from changes_until_now(tx, projects, window)

    def money_revisions(self, projects: Collection[str]) -> dict[str, int]:
        """Return the revisions of projects that have money. Every transaction that changes money raises them."""
        query = sa.select(money_revisions).where(money_revisions.c.project.in_(projects))
        return {row.project: row.revision for row in self._rows(query)}

    def latest_payments(self, project: str, since_ms: int, payments_max: int) -> list[ReceivedPayment]:
        """Return the payments received last, not before `since_ms`, latest first."""
        columns = [payments.c[name] for name in ReceivedPayment._fields]
        query = (
            sa.select(*columns)
            .where(payments.c.project == project, payments.c.received_at >= since_ms)
            .order_by(payments.c.received_at.desc())
            .limit(payments_max)
        )
        return [ReceivedPayment(*row) for row in self._rows(query)]
