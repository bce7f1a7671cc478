"""Turn rows of metrics into the few numbers that an agent asked for."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

from mauve.agents.reader import RefusedError
from mauve.core.window import Window
from mauve.metrics.summaries import Rows, amounts_of, compared_days

DAYS_MAX: Final = 731
_EARLIEST: Final = date(1975, 1, 1)  # The period before must be a valid range in every store.

Money = dict[str, int]  # minor units by currency


def window_of(first: date | None, last: date | None, today: date) -> Window:
    """Return the period that is asked for; by default the 30 days that end today, or on the last day given."""
    last = last or today
    first = first or max(last, _EARLIEST) - timedelta(days=29)  # There may be no date 29 days before the last.
    window = Window(first, last)
    if not _EARLIEST <= first <= last:
        advice = f"give date_from and date_to in order, none before {_EARLIEST}"
        raise RefusedError(f"the period from {first} to {last} is not valid: {advice}")
    if window.length > DAYS_MAX:
        raise RefusedError(f"the period has {window.length} days: give at most {DAYS_MAX}")
    return window


def compared_periods(window: Window, today: date) -> tuple[Window, Window]:
    """Return the whole days of a period, and the same days of the period before."""
    compared = compared_days(window, today)
    if compared is None:
        raise RefusedError(f"the period has no whole day before today, {today}: give an earlier date_from")
    return compared


def value_of(metric: str, rows: Rows, window: Window) -> int | float | Money:
    """Return one value for a window: a sum by currency, a count, or the average of a count per day."""
    amounts = amounts_of(metric, rows, window)
    if None not in amounts:
        return {currency: amount for currency, amount in amounts.items() if currency is not None}
    return amounts[None] / 10 if metric == "dau" else amounts[None]


def now_and_before(now: object, before: object) -> object:
    """Pair two values; sums of money by currency, with zero for a currency that only the other has."""
    if not (isinstance(now, Mapping) and isinstance(before, Mapping)):
        return {"now": now, "before": before}
    currencies = sorted({*now, *before})
    return {each: {"now": now.get(each, 0), "before": before.get(each, 0)} for each in currencies}


def mrr_changes(rows: Rows, window: Window) -> list[tuple[date, str, int]]:
    """Return the changes of MRR on the days of a window: (day, currency, change)."""
    levels = {(date.fromisoformat(row["day"]), row["currency"]): row["mrr"] for row in rows}
    currencies = sorted({currency for _, currency in levels})
    changes = []
    for day in window.days:
        for currency in currencies:
            before = levels.get((day - timedelta(days=1), currency), 0)
            change = levels.get((day, currency), 0) - before
            if change:
                changes.append((day, currency, change))
    return changes
