"""Payments, their day totals and revisions, within the caller's transaction.

Every transaction that changes a project's money first locks the project's row of revisions, so that writers on
PostgreSQL take turns as they do on SQLite.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from mauve.core.times import DAY_MS
from mauve.stores.imports import SOURCE_PREFIX
from mauve.stores.ledger import CLIENT, Outcome, Payment
from mauve.stores.ledger.schema import day_totals, money_revisions, payments
from mauve.stores.sql.dialects import upsert, upsert_adding, upsert_replacing

_KEYS_PER_QUERY: Final = 400
_PAIRS_PER_QUERY: Final = 1_000
_EPOCH: Final = date(1970, 1, 1)

_Id = TypeVar("_Id", str, bytes)
PaymentKey = tuple[str, str]  # project, id
TotalKey = tuple[str, str, str, bool]  # project, day, currency, earned

# `(project, id) IN …` scans the whole table on SQLite. With two lists, it looks up each pair in the index.
_RECORDED: Final = sa.select(
    *(payments.c.project, payments.c.id, payments.c.digest),
    *(payments.c.claimed_at, payments.c.source, payments.c.occurred_at),
).where(
    payments.c.project.in_(sa.bindparam("projects", expanding=True)),
    payments.c.id.in_(sa.bindparam("ids", expanding=True)),
)
_INSERT: Final = sa.insert(payments)
_CHANGE_OWNER: Final = (
    sa.update(payments)
    .where(payments.c.project == sa.bindparam("of_project"), payments.c.id == sa.bindparam("of_id"))
    .values(source=sa.bindparam("new_source"))
)
_TOTAL_KEY: Final = (day_totals.c.project, day_totals.c.day, day_totals.c.currency, day_totals.c.earned)
_TOTALS: Final = sa.select(*_TOTAL_KEY, day_totals.c.total).where(
    day_totals.c.project.in_(sa.bindparam("projects", expanding=True)),
    day_totals.c.day.in_(sa.bindparam("days", expanding=True)),
)


class Claim(NamedTuple):
    """The part of a payment that is compared with a later one with the same id."""

    digest: bytes
    claimed_at: int | None
    source: str = CLIENT
    occurred_at: int = 0

    @property
    def is_imported(self) -> bool:
        return self.source.startswith(SOURCE_PREFIX)


def lock_money(tx: sa.Connection, projects: Collection[str]) -> None:
    """Keep other transactions from changing the money of these projects until this one ends.

    In sorted order, before anything else is locked, so that PostgreSQL transactions cannot deadlock.
    """
    if projects:
        tx.execute(_create_revision(tx.dialect.name), [{"project": each, "revision": 0} for each in sorted(projects)])
        tx.execute(_LOCK, {"projects": sorted(projects)})


@cache
def _create_revision(dialect_name: str) -> sa.Insert:
    return upsert(dialect_name, money_revisions).on_conflict_do_nothing()


_LOCK: Final = (
    sa.select(money_revisions.c.project)
    .where(money_revisions.c.project.in_(sa.bindparam("projects", expanding=True)))
    .order_by(money_revisions.c.project)
    .with_for_update()
)


def recorded_payments(tx: sa.Connection, keys: Collection[PaymentKey]) -> dict[PaymentKey, Claim]:
    """Return the payments recorded under these ids, and possibly others."""
    found: dict[PaymentKey, Claim] = {}
    for projects, ids in key_batches(sorted(keys)):
        rows = tx.execute(_RECORDED, {"projects": projects, "ids": ids})
        found |= {(project, id_): Claim(*claim) for project, id_, *claim in rows}
    return found


def outcome_of(payment: Payment, recorded: Claim | None) -> Outcome:
    if recorded is None:
        return Outcome.ACCEPTED
    if payment.digest != recorded.digest:
        return Outcome.CONFLICT
    is_same_time = None in {payment.claimed_at, recorded.claimed_at} or payment.claimed_at == recorded.claimed_at
    return Outcome.DUPLICATE if is_same_time or payment.source != CLIENT else Outcome.CONFLICT


def take_over(tx: sa.Connection, sources: Mapping[PaymentKey, str]) -> None:
    """Assign imported payments to the sources that also sent them, so that undoing the import does not delete them."""
    if sources:
        rows = [{"of_project": key[0], "of_id": key[1], "new_source": source} for key, source in sources.items()]
        tx.execute(_CHANGE_OWNER, rows)


def insert_payments(tx: sa.Connection, new: Sequence[Payment]) -> None:
    if new:
        tx.execute(_INSERT, [_row_from(payment) for payment in new])


def day_increases(accepted: Iterable[Payment]) -> Counter[TotalKey]:
    increases: Counter[TotalKey] = Counter()
    for payment in accepted:
        increases[payment.project, _day_of(payment.occurred_at), payment.currency, payment.earned] += payment.amount
    return increases


def move_day_totals(tx: sa.Connection, increases: Mapping[TotalKey, int]) -> None:
    keys = sorted(increases)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        found = tx.execute(_TOTALS, {"projects": [key[0] for key in some], "days": [key[1] for key in some]})
        totals: dict[TotalKey, int] = {(row[0], row[1], row[2], row[3]): row.total for row in found}
        rows = [
            dict(zip(day_totals.c.keys(), (*key, totals.get(key, 0) + increases[key]), strict=True)) for key in some
        ]
        tx.execute(upsert_replacing(tx.dialect.name, day_totals), rows)


def _row_from(payment: Payment) -> dict[str, object]:
    row = msgspec.structs.asdict(payment) | {"day": _day_of(payment.occurred_at)}
    del row["org_id"], row["part_of"]
    return row


def _day_of(moment_ms: int) -> str:
    return _day_name(moment_ms // DAY_MS)


@lru_cache(maxsize=64)
def _day_name(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).isoformat()


def key_batches(keys: Sequence[tuple[str, _Id]]) -> Iterator[tuple[list[str], list[_Id]]]:
    """Split sorted keys into lists of projects and ids whose product has few extra pairs."""
    projects: dict[str, None] = {}  # in order, each once
    ids: dict[_Id, None] = {}
    for project, id_ in keys:
        pairs = (len(projects) + (project not in projects)) * (len(ids) + 1)
        if len(ids) == _KEYS_PER_QUERY or pairs > _PAIRS_PER_QUERY:
            yield list(projects), list(ids)
            projects, ids = {}, {}
        projects[project] = None
        ids[id_] = None
    if ids:
        yield list(projects), list(ids)


def raise_revisions(tx: sa.Connection, projects: Collection[str]) -> None:
    """Increment the projects' revisions, which increase with every change of their money."""
    if projects:
        rows = [{"project": project, "revision": 1} for project in sorted(projects)]
        tx.execute(upsert_adding(tx.dialect.name, money_revisions), rows)
