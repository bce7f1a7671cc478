"""Subscriptions at both billers: how often a price is charged, and which of two versions is later.

Deliveries arrive late, twice and in any order. So the order of two versions with the same timestamp must follow from
the versions themselves. Both billers use the same status words.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from mauve.ingest.webhooks.parsed import UnusableEventError
from mauve.ingest.webhooks.warnings import DeliveryWarning

TERMINAL_STAGE: Final = 2
_INITIAL: Final = frozenset({"incomplete"})
_TERMINAL: Final = frozenset({"canceled", "incomplete_expired"})
_INTERVAL_COUNT_MAX: Final = 100_000  # 270 years of days
_PER_MONTH: Final[Mapping[object, Fraction]] = {
    "day": Fraction(365, 12),
    "week": Fraction(52, 12),
    "month": Fraction(1),
    "year": Fraction(1, 12),
}


def times_a_month(interval: object, interval_count: object) -> Fraction | None:
    """Return how often a price is charged per month; None for an unknown interval."""
    count = 1 if interval_count is None else interval_count
    if type(count) is not int or not 1 <= count <= _INTERVAL_COUNT_MAX:
        raise UnusableEventError(DeliveryWarning.INTERVAL_UNUSABLE)
    factor = _PER_MONTH.get(interval) if isinstance(interval, str) else None
    return None if factor is None else factor / count


def stage_of(status: str) -> int:
    """Return 0 for the initial status, which never returns, 2 for the terminal ones, and 1 for all others."""
    if status in _INITIAL:
        return 0
    return TERMINAL_STAGE if status in _TERMINAL else 1
