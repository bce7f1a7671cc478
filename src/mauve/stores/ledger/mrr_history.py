"""Read MRR by day from its changes, within the caller's transaction."""

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

import sqlalchemy as sa

from mauve.core.subscriptions import MrrChange, day_number_of
from mauve.core.window import Window
from mauve.stores.ledger.mrr_changes import DAY, HALF, SPANS
from mauve.stores.ledger.schema import mrr_changes

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
