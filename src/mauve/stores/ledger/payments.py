"""Payments, their day totals and revisions, within the caller's transaction.

Rows are changed in sorted order so that PostgreSQL transactions cannot deadlock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from mauve.core.times import DAY_MS
from mauve.stores import StoreUnavailableError
from mauve.stores.imports import SOURCE_PREFIX
from mauve.stores.ledger import CLIENT, Outcome, Payment
from mauve.stores.ledger.schema import day_totals, money_revisions, payments
from mauve.stores.sql.dialects import upsert, upsert_adding

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
    .where(
        payments.c.project == sa.bindparam("of_project"),
        payments.c.id == sa.bindparam("of_id"),
        payments.c.source == sa.bindparam("of_source"),
    )
    .values(source=sa.bindparam("new_source"))
)
_TOTAL_KEY: Final = (day_totals.c.project, day_totals.c.day, day_totals.c.currency, day_totals.c.earned)
_TOTALS: Final = (
    sa.select(*_TOTAL_KEY, day_totals.c.total)
    .where(
        day_totals.c.project.in_(sa.bindparam("projects", expanding=True)),
        day_totals.c.day.in_(sa.bindparam("days", expanding=True)),
    )
    .order_by(*_TOTAL_KEY)
    .with_for_update()
)
_SET_TOTAL: Final = (
    sa.update(day_totals)
    .where(
        day_totals.c.project == sa.bindparam("of_project"),
        day_totals.c.day == sa.bindparam("of_day"),
        day_totals.c.currency == sa.bindparam("of_currency"),
        day_totals.c.earned == sa.bindparam("of_earned"),
    )
    .values(total=sa.bindparam("new_total"))
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


class PaymentChangedError(StoreUnavailableError):
    """Another transaction has changed or deleted a payment since it was read: retry."""


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


def take_over(tx: sa.Connection, sources: Mapping[PaymentKey, str], recorded: Mapping[PaymentKey, Claim]) -> None:
    """Assign imported payments to the sources that also sent them, so that undoing the import does not delete them."""
    # In the same lock order as undoing an import.
    for key in sorted(sources, key=lambda key: (key[0], recorded[key].occurred_at, key[1])):
        project, id_ = key
        names = {"of_project": project, "of_id": id_, "of_source": recorded[key].source, "new_source": sources[key]}
        if tx.execute(_CHANGE_OWNER, names).rowcount == 0:
            raise PaymentChangedError("a payment was changed or deleted by another transaction")


def insert_payments(tx: sa.Connection, new: Mapping[PaymentKey, Payment]) -> None:
    """Store payments; fail if another transaction has just stored one of them."""
    tx.execute(_INSERT, [_row_from(new[key]) for key in sorted(new)])


def insert_one_by_one(tx: sa.Connection, new: Mapping[PaymentKey, Payment]) -> set[PaymentKey]:
    """Store payments one at a time; return those that another transaction stored first, and their parts."""
    insert = _insert_unless_there(tx.dialect.name)
    lost: set[PaymentKey] = set()
    for key in sorted(new, key=lambda key: (new[key].part_of is not None, key)):  # parts after the whole
        payment = new[key]
        if (payment.project, payment.part_of) in lost or tx.execute(insert, _row_from(payment)).rowcount == 0:
            lost.add(key)
    return lost


@cache
def _insert_unless_there(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, payments).on_conflict_do_nothing(index_elements=[payments.c.project, payments.c.id])
    return insert.execution_options(preserve_rowcount=True)  # an insert has none by default


def day_increases(accepted: Iterable[Payment]) -> Counter[TotalKey]:
    increases: Counter[TotalKey] = Counter()
    for payment in accepted:
        increases[payment.project, _day_of(payment.occurred_at), payment.currency, payment.earned] += payment.amount
    return increases


def move_day_totals(tx: sa.Connection, increases: Mapping[TotalKey, int]) -> None:
    keys = sorted(increases)
    names = ("of_project", "of_day", "of_currency", "of_earned", "new_total")
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        some = keys[start : start + _KEYS_PER_QUERY]
        totals = _totals(tx, some)
        rows = [dict(zip(names, (*key, totals[key] + increases[key]), strict=True)) for key in some]
        tx.execute(_SET_TOTAL, rows)


def _totals(tx: sa.Connection, keys: Sequence[TotalKey]) -> dict[TotalKey, int]:
    """Return the totals, locked until the transaction ends; create missing rows first so that they can be locked."""
    found = _held_totals(tx, keys)
    missing = [key for key in keys if key not in found]
    if not missing:
        return found
    rows = [dict(zip(day_totals.c.keys(), (*key, 0), strict=True)) for key in missing]
    tx.execute(_insert_missing(tx.dialect.name), rows)
    return found | _held_totals(tx, missing)


@cache
def _insert_missing(dialect_name: str) -> sa.Insert:
    return upsert(dialect_name, day_totals).on_conflict_do_nothing(index_elements=_TOTAL_KEY)


def _held_totals(tx: sa.Connection, keys: Sequence[TotalKey]) -> dict[TotalKey, int]:
    projects, days = {key[0] for key in keys}, {key[1] for key in keys}
    rows = tx.execute(_TOTALS, {"projects": sorted(projects), "days": sorted(days)})
    return {(project, day, currency, earned): total for project, day, currency, earned, total in rows}


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
    """Increment the projects' revisions, which increase with every change of their money.

    Call this last in a transaction, so that transactions cannot deadlock on these rows.
    """
    if projects:
        rows = [{"project": project, "revision": 1} for project in sorted(projects)]
        tx.execute(upsert_adding(tx.dialect.name, money_revisions), rows)
