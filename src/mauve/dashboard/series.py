"""Rows of an answer → numbers for every day, and what they come to. Money stays in minor units, by currency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mauve.core.window import Window

Rows = Sequence[Mapping[str, Any]]

_HUNDRED: Final = 100


@dataclass(frozen=True, slots=True)
class Change:
    """How a number has moved against the period before; no percent when there was nothing to compare with."""

    percent: int | None
    direction: str  # up, down or same


def by_day(rows: Rows, column: str, window: Window) -> list[int]:
    """Return one number for each day of the window; the API leaves out days without any."""
    found = {row["day"]: row[column] for row in rows}
    return [found.get(day.isoformat(), 0) for day in window.days]


def currencies_in(*answers: Rows) -> list[str]:
    return sorted({row["currency"] for rows in answers for row in rows})


def of_currency(rows: Rows, currency: str) -> Rows:
    return [row for row in rows if row["currency"] == currency]


def amounts(rows: Rows, column: str) -> dict[str, int]:
    """Return the sum of each currency."""
    return {currency: sum(row[column] for row in of_currency(rows, currency)) for currency in currencies_in(rows)}


def amounts_on(rows: Rows, column: str, window: Window) -> dict[str, int]:
    """Return what stands on the last day of a window, by currency."""
    last = window.last.isoformat()
    return {row["currency"]: row[column] for row in rows if row["day"] == last}


def average(numbers: Sequence[int]) -> int:
    """Return the average, halves rounded up."""
    return (2 * sum(numbers) + len(numbers)) // (2 * len(numbers)) if numbers else 0


def change(now: int, before: int) -> Change:
    """Return how much more or less it is, in whole percent, halves away from zero."""
    if now == before:
        return Change(0 if now else None, "same")
    direction = "up" if now > before else "down"
    if before <= 0:
        return Change(None, direction)
    percent = (2 * _HUNDRED * abs(now - before) + before) // (2 * before)
    return Change(percent if direction == "up" else -percent, direction)
