"""The history of MRR: what it was at the end of each day, from every version of every subscription."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

from mauve.core.subscriptions import MrrStep
from mauve.core.window import Window

_DAY_US: Final = 86_400_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_NEVER_US: Final = 2**63 - 1


@dataclass(slots=True)
class Total:
    """Subscriptions of one currency: a sum of zero is something else than none."""

    mrr: int = 0
    active: int = 0


Changes = dict[int, dict[str, Total]]  # ordinal of the day → currency → what was added to the day before


def steps_end_at(window: Window, today: date) -> int:
    """Return the first moment, in epoch microseconds, of which the history of a window knows nothing.

    Today's row is the MRR as it is now, and for that the latest version counts, whatever moment it names.
    """
    return _NEVER_US if window.last >= today else (window.last.toordinal() + 1 - _EPOCH_ORDINAL) * _DAY_US


def mrr_by_day(steps: Iterable[MrrStep], window: Window, today: date) -> Iterator[tuple[str, str, int]]:
    """Yield (day, currency, mrr) at the end of each day, carried forward, while any subscription is active.

    The steps are of one project. Those of one subscription come together, the later one after the earlier. Held at a
    time are the days on which something changed, not the steps.
    """
    first, last = window.first.toordinal(), min(window.last, today).toordinal()
    if first > last:
        return
    changes = _changes_by_day(steps, first, last)
    totals: dict[str, Total] = defaultdict(Total)
    for ordinal in range(min(changes, default=last + 1), last + 1):
        for currency, change in changes.get(ordinal, {}).items():
            totals[currency].mrr += change.mrr
            totals[currency].active += change.active
        day = date.fromordinal(ordinal).isoformat()
        yield from ((day, currency, totals[currency].mrr) for currency in sorted(totals) if totals[currency].active)


def _changes_by_day(steps: Iterable[MrrStep], first: int, last: int) -> Changes:
    """Return what each version changed; what happened outside of these days happened, for us, on the nearest."""
    changes: Changes = defaultdict(lambda: defaultdict(Total))
    last_subscription, last_currency, last_mrr = b"", "", None
    for _, subscription, at, currency, mrr in steps:  # Millions of them: taken apart once, without calls.
        day = changes[min(last, max(first, at // _DAY_US + _EPOCH_ORDINAL))]
        if last_mrr is not None and last_subscription == subscription:
            total = day[last_currency]
            total.mrr -= last_mrr
            total.active -= 1
        if mrr is not None:
            total = day[currency]
            total.mrr += mrr
            total.active += 1
        last_subscription, last_currency, last_mrr = subscription, currency, mrr
    return changes
