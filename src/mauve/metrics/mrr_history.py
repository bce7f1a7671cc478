"""The history of MRR: its value at the end of each day, computed from daily changes."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import groupby
from operator import attrgetter
from typing import Final

from mauve.core.subscriptions import MrrChange, day_number_of
from mauve.core.window import Window

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()

_Levels = dict[str, tuple[int, int]]  # currency → active subscriptions and their MRR


def days_known(window: Window, today: date) -> Window | None:
    """Return the days of a window that have begun, or None."""
    return Window(window.first, min(window.last, today)) if window.first <= today else None


def mrr_by_day(changes: Iterable[MrrChange], window: Window) -> Iterator[tuple[str, str, int]]:
    """Yield (day, currency, mrr) at the end of each day, carried forward, while any subscription is active.

    The changes are those of one project, by day, with everything before the window on its first day. Only the current
    level of each currency is held, so a caller that stops early has caused no more work than it took.
    """
    levels: _Levels = {}
    day = day_number_of(window.first)
    for next_day, of_day in groupby(changes, attrgetter("day")):
        yield from _rows(levels, day, next_day)
        for change in of_day:
            _move(levels, change)
        day = next_day
    yield from _rows(levels, day, day_number_of(window.last) + 1)


def _move(levels: _Levels, change: MrrChange) -> None:
    active, mrr = levels.get(change.currency, (0, 0))
    level = (active + change.active, mrr + change.mrr)
    if any(level):
        levels[change.currency] = level
    else:
        levels.pop(change.currency, None)


def _rows(levels: Mapping[str, tuple[int, int]], first: int, end: int) -> Iterator[tuple[str, str, int]]:
    shown = sorted((currency, mrr) for currency, (active, mrr) in levels.items() if active)
    if not shown:
        return
    for number in range(first, end):
        day = date.fromordinal(_EPOCH_ORDINAL + number).isoformat()
        yield from ((day, currency, mrr) for currency, mrr in shown)
