"""Turn the rows of an answer into daily values and totals. Money stays in minor units, by currency."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mauve.core.window import Window

Rows = Sequence[Mapping[str, Any]]

DRAWN_CURRENCIES_MAX: Final = 12
_HUNDRED: Final = 100


@dataclass(frozen=True, slots=True)
class Change:
    """The change from the previous period; without a percentage if the previous value was not positive."""

    percent: int | None
    direction: str  # up, down or same


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
    """Group rows by currency."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["currency"]].append(row)
    return found


def drawn_currencies(*answers: Mapping[str, Rows]) -> list[str]:
    """Return the currencies to draw: those with the most rows, up to a maximum.

    Clients choose the currencies, and each one drawn costs a number for every day.
    """
    counts: Counter[str] = Counter()
    for answer in answers:
        counts.update({currency: len(rows) for currency, rows in answer.items()})
    return sorted(sorted(counts, key=lambda currency: (-counts[currency], currency))[:DRAWN_CURRENCIES_MAX])


def totals_by_currency(rows: Mapping[str, Rows], column: str) -> dict[str, int]:
    """Return the total of each currency."""
    return {currency: sum(row[column] for row in own) for currency, own in rows.items()}


def last_day_amounts(rows: Rows, column: str, window: Window) -> dict[str, int]:
    """Return the amounts on the last day of a window, by currency."""
    last = window.last.isoformat()
    return {row["currency"]: row[column] for row in rows if row["day"] == last}


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
