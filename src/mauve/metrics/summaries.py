"""Summaries of a metric's rows, by one rule for pages, alerts and agents: sums, averages, levels and changes.

Money stays in minor units, by currency. Today is unfinished: only whole days are averaged and compared.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from mauve.core.subscriptions import MrrChange, day_number_of
from mauve.core.window import DAY, Window

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_Levels = dict[str, tuple[int, int]]  # currency → active subscriptions and their MRR
Rows = Sequence[Mapping[str, Any]]
Amounts = dict[str | None, int]  # by currency; a count has none
_HUNDRED: Final = 100


@dataclass(frozen=True, slots=True)
class Change:
    """The change from the previous period; without a percentage if the previous value was not positive."""

    percent: int | None
    direction: str  # up, down or same


def whole_days_before(today: date, days: int) -> Window:
    """Return a number of days up to yesterday: a day that has just begun would look like a drop."""
    return Window(today - timedelta(days=days), today - DAY)


def compared_days(window: Window, today: date) -> tuple[Window, Window] | None:
    """Return the whole days of a window, and the same days of the window before; None if there are no whole days."""
    whole = Window(window.first, min(window.last, today - DAY))
    if whole.length < 1:
        return None
    first = window.before.first
    return whole, Window(first, first + (whole.last - whole.first))


def amounts_of(metric: str, rows: Rows, window: Window) -> Amounts:
    """Return what the rows of a metric in a window amount to. The average DAU is in tenths."""
    match metric:
        case "dau":
            return {None: average_tenths(by_day(rows, "dau", window))}
        case "revenue" | "volume" | "mrr":
            return dict[str | None, int](totals_by_currency(rows, metric).items())
        case "mrr_history":
            return dict[str | None, int](mrr_on(window.last, rows).items())
        case "event_count" | "event_names":
            return {None: sum(row["count"] for row in rows)}
        case _:
            return {None: rows[0][metric]}


def by_day(rows: Rows, column: str, window: Window) -> list[int]:
    """Return one number for each day of the window. The API omits days without data: they are 0."""
    found = {row["day"]: row[column] for row in rows}
    return [found.get(day.isoformat(), 0) for day in window.days]


def rows_in(rows: Rows, window: Window | None) -> Rows:
    """Return the rows of the days in a window; none without a window."""
    if window is None:
        return []
    return [row for row in rows if window.first.isoformat() <= row["day"] <= window.last.isoformat()]


def by_currency(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["currency"]].append(row)
    return found


def totals_by_currency(rows: Rows, column: str) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["currency"]] += row[column]
    return dict(totals)


def mrr_on(day: date, rows: Rows) -> dict[str, int]:
    """Return the MRR at the end of a day, by currency."""
    return {row["currency"]: row["mrr"] for row in rows if row["day"] == day.isoformat()}


def average_tenths(numbers: Sequence[int]) -> int:
    """Return the average in tenths, rounded half up."""
    return (20 * sum(numbers) + len(numbers)) // (2 * len(numbers)) if numbers else 0


def change(now: int, before: int) -> Change:
    """Return the change in whole percent, rounded half away from zero."""
    if now == before:
        return Change(0 if now else None, "same")
    direction = "up" if now > before else "down"
    if before <= 0:
        return Change(None, direction)
    percent = (2 * _HUNDRED * abs(now - before) + before) // (2 * before)
    return Change(percent if direction == "up" else -percent, direction)


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
