"""MRR by day, stored as changes. Everything runs within the caller's transaction.

Changes are stored for single days and summed for blocks of days: the level at the end of any day is the sum of a few
rows, and a version dated years ago changes as many rows as one dated today.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.subscriptions import InsertedVersion, MrrChange, MrrContribution, day_of
from mauve.stores.ledger.schema import mrr_changes, subscription_versions
from mauve.stores.sql.dialects import upsert

DAY: Final = 1
SPANS: Final = (DAY, 128, 128 * 128)
"""The days in a block: any day is reached by at most 127 days, 127 blocks and the blocks of the largest size."""

# A sum of MRR may exceed 64 bits, so its halves are summed separately: exact for two billion versions.
HALF: Final = 2**32

_LevelKey = tuple[str, int, int, str]  # project, span, block, currency


def add_changes(tx: sa.Connection, changes: Iterable[MrrChange]) -> None:
    """Add to the days and blocks, in sorted order so that PostgreSQL transactions cannot deadlock."""
    sums: dict[_LevelKey, list[int]] = defaultdict(lambda: [0, 0])
    for project, day, currency, active, mrr in changes:
        for span in SPANS:
            total = sums[project, span, day // span, currency]
            total[0] += active
            total[1] += mrr
    rows = [_row_from(key, *total) for key, total in sorted(sums.items()) if total != [0, 0]]
    if rows:
        tx.execute(_add(tx.dialect.name), rows)


def _row_from(key: _LevelKey, active: int, mrr: int) -> dict[str, Any]:
    project, span, block, currency = key
    high, low = divmod(mrr, HALF)
    return {
        "project": project,
        "span": span,
        "block": block,
        "currency": currency,
        "active": active,
        "high": high,
        "low": low,
    }


@cache
def _add(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, mrr_changes)
    sums = {name: mrr_changes.c[name] + insert.excluded[name] for name in ("active", "high", "low")}
    return insert.on_conflict_do_update(index_elements=list(mrr_changes.primary_key.columns), set_=sums)


_version: Final = subscription_versions.alias("version")
_before: Final = subscription_versions.alias("before")
_other: Final = subscription_versions.alias("other")
_of_the_same: Final = sa.and_(_other.c.project == _version.c.project, _other.c.key == _version.c.key)


# Each is a lookup in the index of versions by history. Among versions of equal time and rank, the new ones were
# recorded last, so the next one ranks higher or is later. Comparing pairs would make SQLite scan all equal ones, so the
# two cases are looked up separately.
_before_sequence: Final = (
    sa.select(_other.c.sequence)
    .where(
        _of_the_same,
        sa.tuple_(_other.c.at, _other.c.rank, _other.c.sequence)
        < sa.tuple_(_version.c.at, _version.c.rank, _version.c.sequence),
    )
    .order_by(_other.c.at.desc(), _other.c.rank.desc(), _other.c.sequence.desc())
    .limit(1)
    .correlate(_version)
    .scalar_subquery()
)
_higher_rank_at: Final = (
    sa.select(_other.c.at)
    .where(_of_the_same, _other.c.at == _version.c.at, _other.c.rank > _version.c.rank)
    .limit(1)
    .correlate(_version)
    .scalar_subquery()
)
_later_at: Final = (
    sa.select(_other.c.at)
    .where(_of_the_same, _other.c.at > _version.c.at)
    .order_by(_other.c.at)
    .limit(1)
    .correlate(_version)
    .scalar_subquery()
)


def _contribution_columns(table: sa.FromClause) -> tuple[sa.ColumnElement[Any], ...]:
    return table.c.currency, sa.case((table.c.status == "active", table.c.mrr))  # else NULL


_INSERTED: Final = (
    sa.select(
        *(_version.c.project, _version.c.sequence, _version.c.at, *_contribution_columns(_version)),
        *(_before.c.sequence, *_contribution_columns(_before), sa.func.coalesce(_higher_rank_at, _later_at)),
    )
    .select_from(_version)
    .outerjoin(_before, _before.c.sequence == _before_sequence)
    .where(_version.c.sequence.in_(sa.bindparam("sequences", expanding=True)))
)


def inserted_versions(tx: sa.Connection, sequences: Collection[int]) -> Iterator[InsertedVersion]:
    """Yield versions that were just appended together, with their neighbors."""
    rows: Sequence[Any] = tx.execute(_INSERTED, {"sequences": list(sequences)}).all()
    for project, sequence, at, currency, mrr, before, before_currency, before_mrr, after_at in rows:
        yield InsertedVersion(
            project,
            sequence,
            day_of(at),
            MrrContribution(currency, mrr),
            before,
            None if before is None else MrrContribution(before_currency, before_mrr),
            None if after_at is None else day_of(after_at),
        )
