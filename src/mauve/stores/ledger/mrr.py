"""MRR by day, stored as changes and read from them. Everything runs within the caller's transaction.

Changes are stored for single days and summed for blocks of days: the level at the end of any day is the sum of a few
rows, and a version dated years ago changes as many rows as one dated today.
"""

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mauve.core.subscriptions import InsertedVersion, MrrChange, MrrContribution, day_number_of, day_of
from mauve.core.window import Window
from mauve.stores.ledger.schema import mrr_changes, subscription_versions
from mauve.stores.sql.dialects import upsert_adding

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
    rows = [
        dict(zip(mrr_changes.c.keys(), (*key, active, *divmod(mrr, HALF)), strict=True))
        for key, (active, mrr) in sorted(sums.items())
        if active or mrr
    ]
    if rows:
        tx.execute(upsert_adding(tx.dialect.name, mrr_changes), rows)


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


_Blocks = tuple[int, int, int]  # span, first, end


class MrrTotal(NamedTuple):
    """Subscriptions of one currency: a sum of zero differs from no subscriptions."""

    active: int
    mrr: int


_ZERO: Final = MrrTotal(0, 0)

_BLOCK_MAX: Final = 2**31 - 1
_ROWS_AT_ONCE: Final = 1_000

_changes: Final = mrr_changes.c
_of_blocks: Final = sa.and_(
    _changes.project.in_(sa.bindparam("projects", expanding=True)),
    _changes.span == sa.bindparam("of_span"),
    _changes.block >= sa.bindparam("first"),
    _changes.block < sa.bindparam("end"),
)
# Skip reverted changes.
_is_zero: Final = sa.and_(
    _changes.active == 0, _changes.low % HALF == 0, _changes.high + _changes.low // HALF == sa.literal(0)
)
_DAYS: Final = (
    sa.select(_changes.project, _changes.block, _changes.currency, _changes.active, _changes.high, _changes.low)
    .where(_of_blocks, sa.not_(_is_zero))
    .order_by(_changes.project, _changes.block, _changes.currency)  # in key order: nothing is sorted
    .execution_options(yield_per=_ROWS_AT_ONCE)
)
_SUMS: Final = (
    sa.select(
        _changes.project,
        _changes.currency,
        *(sa.func.sum(column) for column in (_changes.active, _changes.high, _changes.low)),
    )
    .where(_of_blocks)
    .group_by(_changes.project, _changes.currency)
)


def totals_of(tx: sa.Connection, projects: Collection[str]) -> dict[str, dict[str, MrrTotal]]:
    """Return the totals of all versions, of any date, by project and currency."""
    return _sums_of(tx, projects, [(SPANS[-1], -_BLOCK_MAX, _BLOCK_MAX)])


def changes_in(tx: sa.Connection, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
    """Yield the changes of each day by project, with everything before the window on its first day."""
    first = day_number_of(window.first)
    opening = _sums_of(tx, projects, _blocks_before(first))
    with closing(_days(tx, projects, window)) as changes:
        for project, days in groupby(changes, attrgetter("project")):
            yield from _on_day(first, project, opening.pop(project, {}))
            yield from days
    for project, totals in opening.items():
        yield from _on_day(first, project, totals)


def changes_until_now(tx: sa.Connection, projects: Collection[str], window: Window) -> Iterator[MrrChange]:
    """Yield the same, with versions dated after the window on its last day."""
    last = day_number_of(window.last)
    after_window = totals_of(tx, projects)
    with closing(changes_in(tx, projects, window)) as in_window:
        for project, changes in groupby(in_window, attrgetter("project")):
            rest = after_window.pop(project, {})
            for change in changes:
                yield change
                _, _, currency, active, mrr = change
                held = rest.get(currency, _ZERO)
                rest[currency] = MrrTotal(held.active - active, held.mrr - mrr)
            yield from _on_day(last, project, rest)
    for project, totals in after_window.items():
        yield from _on_day(last, project, totals)


def _on_day(day: int, project: str, totals: Mapping[str, MrrTotal]) -> Iterator[MrrChange]:
    for currency, total in sorted(totals.items()):
        if total != _ZERO:
            yield MrrChange(project, day, currency, *total)


def _days(tx: sa.Connection, projects: Collection[str], window: Window) -> Generator[MrrChange, None, None]:
    first, end = day_number_of(window.first), day_number_of(window.last) + 1
    # Always close the result: on a server, it is a cursor that holds memory there.
    with tx.execute(_DAYS, {"projects": list(projects), "of_span": DAY, "first": first, "end": end}) as rows:
        for project, day, currency, active, high, low in rows:
            yield MrrChange(project, day, currency, active, high * HALF + low)


def _blocks_before(day: int) -> Iterator[_Blocks]:
    """Yield (span, first, end) of the blocks that together cover all days before this one, each once."""
    end = day
    for span, wider in pairwise(SPANS):
        blocks = wider // span
        first = end // blocks * blocks
        yield span, first, end
        end = first // blocks
    yield SPANS[-1], -_BLOCK_MAX, end


def _sums_of(tx: sa.Connection, projects: Collection[str], blocks: Iterable[_Blocks]) -> dict[str, dict[str, MrrTotal]]:
    sums: dict[str, dict[str, MrrTotal]] = defaultdict(dict)
    for span, first, end in blocks:
        bound = {"projects": list(projects), "of_span": span, "first": first, "end": end}
        for project, currency, active, high, low in tx.execute(_SUMS, bound) if first < end else ():
            held = sums[project].get(currency, _ZERO)
            sums[project][currency] = MrrTotal(held.active + int(active), held.mrr + int(high) * HALF + int(low))
    return sums
