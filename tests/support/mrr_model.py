"""The history of MRR by its definition: for every day, look at every version of every subscription."""

import math
from collections.abc import Sequence
from datetime import date, timedelta

from mauve.core.subscriptions import day_number_of
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.metrics.summaries import days_known, mrr_by_day
from mauve.stores.ledger import SubscriptionVersion
from mauve.stores.ledger.reader import LedgerReader

DAY_US = DAY_MS * 1000


def history_by_model(
    recorded: Sequence[SubscriptionVersion], window: Window, today: date
) -> list[tuple[str, str, int]]:
    """Return the rows of one project, whose versions are in the order of recording."""
    rows: list[tuple[str, str, int]] = []
    day = window.first
    while day <= min(window.last, today):
        ends_us = math.inf if day == today else (day_number_of(day) + 1) * DAY_US - 1
        active = [each for each in _standing(recorded, ends_us).values() if each.status == "active"]
        rows += [
            (day.isoformat(), currency, sum(each.mrr for each in active if each.currency == currency))
            for currency in sorted({each.currency for each in active})
        ]
        day += timedelta(days=1)
    return rows


def _standing(recorded: Sequence[SubscriptionVersion], ends_us: float) -> dict[str, SubscriptionVersion]:
    """Return the version of each subscription that is current at a given time."""
    standing: dict[str, SubscriptionVersion] = {}
    known = set()
    for version in recorded:
        if version.rank and (version.id, version.at, version.rank) in known:
            continue  # a repeat
        known.add((version.id, version.at, version.rank))
        held = standing.get(version.id)
        if version.at <= ends_us and (held is None or (version.at, version.rank) >= (held.at, held.rank)):
            standing[version.id] = version
    return standing


def history_of(
    reader: LedgerReader, project: str, first: date, last: date, today: date = date.max
) -> list[tuple[str, str, int]]:
    """Return the rows that result from a ledger's changes."""
    known = days_known(Window(first, last), today)
    if known is None:
        return []
    changes = reader.mrr_changes_until_now if known.last == today else reader.mrr_changes
    return list(mrr_by_day(changes([project], known), known))
