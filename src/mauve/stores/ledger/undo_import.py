"""Delete the payments and subscription versions of an import, as if they had never been recorded."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.subscriptions import MrrContribution, MrrSums, day_of
from mauve.core.times import DAY_MS
from mauve.core.window import midnight_ms
from mauve.stores.imports import rank_prefix
from mauve.stores.ledger import Payment
from mauve.stores.ledger.money_revisions import raise_revisions
from mauve.stores.ledger.mrr_changes import add_changes
from mauve.stores.ledger.payments import move_day_totals
from mauve.stores.ledger.schema import day_totals, payments, subscription_versions, subscriptions
from mauve.stores.sql.database import Database

_PAYMENTS_AT_ONCE: Final = 500
_SUBSCRIPTIONS_AT_ONCE: Final = 100
_VERSIONS_AT_ONCE: Final = 1_000

_versions: Final = subscription_versions.c
_CURRENT: Final = tuple(column.name for column in subscriptions.c)


def delete_payments(database: Database, project: str, source: str) -> Iterator[int]:
    """Yield the number deleted by each transaction."""
    after: tuple[int, str] = (-(2**62), "")
    place = sa.tuple_(payments.c.occurred_at, payments.c.id)
    while True:
        with database.writing() as tx:
            some = (
                sa.select(payments)
                .where(payments.c.project == project, payments.c.source == source, place > sa.tuple_(*after))
                .order_by(payments.c.occurred_at, payments.c.id)
                .limit(_PAYMENTS_AT_ONCE)
                .with_for_update()
            )
            rows = tx.execute(some).mappings().all()
            if not rows:
                return
            # The same sums with the opposite sign.
            move_day_totals(tx, [_negative(row) for row in rows])
            tx.execute(
                sa.delete(payments).where(payments.c.project == project, payments.c.id == sa.bindparam("of_id")),
                [{"of_id": row["id"]} for row in rows],
            )
            _delete_empty_totals(tx, project, {(row["day"], row["currency"], row["earned"]) for row in rows})
            raise_revisions(tx, [project])
            after = (rows[-1]["occurred_at"], rows[-1]["id"])
        yield len(rows)


def _delete_empty_totals(tx: sa.Connection, project: str, changed: set[tuple[str, str, bool]]) -> None:
    """Delete the totals of days without payments, but keep a zero total that stems from payments of zero."""
    for day, currency, earned in sorted(changed):
        begins_at = midnight_ms(date.fromisoformat(day))
        is_left = sa.exists().where(
            payments.c.project == project,
            payments.c.occurred_at.between(begins_at, begins_at + DAY_MS - 1),
            payments.c.currency == currency,
            payments.c.earned == earned,
        )
        totals = day_totals.c
        is_it = (totals.project == project) & (totals.day == day)
        is_it &= (totals.currency == currency) & (totals.earned == earned)
        tx.execute(sa.delete(day_totals).where(is_it, totals.total == 0, ~is_left))


def _negative(row: Any) -> Payment:  # noqa: ANN401 - a row of the table
    return Payment(
        org_id="",
        project=row["project"],
        id=row["id"],
        digest=b"",
        claimed_at=None,
        amount=-row["amount"],
        currency=row["currency"],
        earned=row["earned"],
        user=None,
        occurred_at=row["occurred_at"],
        received_at=0,
        payload=b"",
    )


def delete_versions(database: Database, project: str, number: int) -> Iterator[int]:
    prefix = rank_prefix(number)
    imported = sa.and_(
        _versions.project == project,
        _versions.rank >= prefix,
        _versions.rank < prefix[:-1] + bytes([prefix[-1] + 1]),
    )
    keys = sa.select(_versions.key).where(imported).distinct().order_by(_versions.key).limit(_SUBSCRIPTIONS_AT_ONCE)
    while True:
        with database.writing() as tx:
            found = tx.execute(keys).scalars().all()
            if not found:
                return
            sums = MrrSums()
            for key in found:
                _without_imported(tx, project, key, prefix, sums)
            add_changes(tx, sums.changes)
            deleted = tx.execute(sa.delete(subscription_versions).where(imported, _versions.key.in_(found)))
            raise_revisions(tx, [project])
        yield deleted.rowcount


@dataclass(slots=True)
class _Histories:
    """The latest version so far: of all, and of those to keep."""

    of_all: MrrContribution | None = None
    of_kept: MrrContribution | None = None
    current: int | None = None  # the sequence of the latest that stays


def _without_imported(tx: sa.Connection, project: str, key: bytes, prefix: bytes, sums: MrrSums) -> None:
    """Add up the MRR changes from removing the imported versions, and make the latest remaining one current."""
    tx.execute(_LOCK, {"of_project": project, "of_key": key})
    seen = _Histories()
    history = tx.execute(_HISTORY, {"of_project": project, "of_key": key})
    for sequence, at, rank, status, currency, mrr in history:
        contribution = MrrContribution(currency, mrr if status == "active" else None)
        sums.replace(project, day_of(at), contribution, seen.of_all)
        seen.of_all = contribution
        if not rank.startswith(prefix):
            sums.replace(project, day_of(at), seen.of_kept, contribution)
            seen.of_kept, seen.current = contribution, sequence
    of_key = (subscriptions.c.project == project) & (subscriptions.c.key == key)
    if seen.current is None:
        tx.execute(sa.delete(subscriptions).where(of_key))
        return
    latest = tx.execute(sa.select(subscription_versions).where(_versions.sequence == seen.current)).mappings().one()
    tx.execute(sa.update(subscriptions).where(of_key).values({name: latest[name] for name in _CURRENT}))


_LOCK: Final = (
    sa.select(subscriptions.c.key)
    .where(subscriptions.c.project == sa.bindparam("of_project"), subscriptions.c.key == sa.bindparam("of_key"))
    .with_for_update()
)
_HISTORY: Final = (
    sa.select(*(_versions.sequence, _versions.at, _versions.rank, _versions.status, _versions.currency, _versions.mrr))
    .where(_versions.project == sa.bindparam("of_project"), _versions.key == sa.bindparam("of_key"))
    .order_by(_versions.at, _versions.rank, _versions.sequence)
    .execution_options(yield_per=_VERSIONS_AT_ONCE)
)
