"""Monthly recurring revenue: exact fractions, rounded once."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from mauve.ingest.webhooks.parsed import MINOR_UNITS_MAX, UnusableError
from mauve.ingest.webhooks.warnings import DeliveryWarning

_INTERVAL_COUNT_MAX: Final = 100_000  # 270 years of days
_PER_MONTH: Final[Mapping[object, Fraction]] = {
    "day": Fraction(365, 12),
    "week": Fraction(52, 12),
    "month": Fraction(1),
    "year": Fraction(1, 12),
}


def times_a_month(interval: object, interval_count: object) -> Fraction | None:
    """Return how often something is charged in a month; None for an interval that nobody knows."""
    count = 1 if interval_count is None else interval_count
    if type(count) is not int or not 1 <= count <= _INTERVAL_COUNT_MAX:
        raise UnusableError(DeliveryWarning.INTERVAL_UNUSABLE)
    factor = _PER_MONTH.get(interval) if isinstance(interval, str) else None
    return None if factor is None else factor / count


def rounded_total(parts: Iterable[Fraction]) -> int:
    """Return the sum in whole minor units, half up. Rounding each part would drift."""
    total = int(sum(parts, Fraction(1, 2)) // 1)
    if not 0 <= total <= MINOR_UNITS_MAX:
        raise UnusableError(DeliveryWarning.AMOUNT_UNUSABLE)
    return total
