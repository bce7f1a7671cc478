"""Turn rows of metrics into the few numbers that an agent asked for."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Final

from mauve.agents.reader import RefusedError, Row
from mauve.core.window import Window

DAYS_MAX: Final = 731
_EARLIEST: Final = date(1975, 1, 1)  # The period before must be a valid range in every store.
MONEY: Final = frozenset({"revenue", "volume"})

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


def money_in(rows: Iterable[Row], metric: str, window: Window) -> Money:
    """Add up the days of a window by currency."""
    sums: Money = {}
    for row in rows:
        if window.first <= _day(row) <= window.last:
            currency = str(row["currency"])
            sums[currency] = sums.get(currency, 0) + int(row[metric])
    return sums


def mrr_on(rows: Iterable[Row], day: date) -> Money:
    return {str(row["currency"]): int(row["mrr"]) for row in rows if _day(row) == day}


def amount(rows: Sequence[Row], metric: str, window: Window) -> int | float | Money:
    """Return one value for a window: a sum by currency, a count, or the average of a count per day."""
    if metric in MONEY:
        return money_in(rows, metric, window)
    if metric == "dau":
        return round(sum(int(row["dau"]) for row in rows) / window.length, 1)
    column = "count" if metric == "event_count" else metric
    return sum(int(row[column]) for row in rows)


def now_and_before(now: object, before: object) -> object:
    """Pair two values; sums of money by currency, with zero for a currency that only the other has."""
    if not (isinstance(now, Mapping) and isinstance(before, Mapping)):
        return {"now": now, "before": before}
    currencies = sorted({*now, *before})
    return {each: {"now": now.get(each, 0), "before": before.get(each, 0)} for each in currencies}


def mrr_changes(rows: Iterable[Row], window: Window) -> list[tuple[date, str, int]]:
    """Return the changes of MRR on the days of a window: (day, currency, change)."""
    levels = {(_day(row), str(row["currency"])): int(row["mrr"]) for row in rows}
    currencies = sorted({currency for _, currency in levels})
    changes = []
    for day in window.days:
        for currency in currencies:
            before = levels.get((day - timedelta(days=1), currency), 0)
            change = levels.get((day, currency), 0) - before
            if change:
                changes.append((day, currency, change))
    return changes


def _day(row: Row) -> date:
    return date.fromisoformat(str(row["day"]))
