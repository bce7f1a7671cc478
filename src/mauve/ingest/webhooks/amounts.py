"""Amounts of money in deliveries, converted from the billers' units to the minor units of ISO 4217.

For most currencies the two are the same. But both billers send 5,000 Icelandic krónur as 500000, although the króna
has no minor unit, and 5,000 Malagasy ariary as 5000, although ISO 4217 gives the ariary two digits.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Final

from mauve.core.money import Money, is_currency, minor_digits
from mauve.ingest.webhooks.parsed import DeliveryWarning, UnusableEventError

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


MINOR_UNITS_MAX: Final = 2**53 - 1
# Currencies in which the billers count other digits than ISO 4217. The two billers agree.
_BILLED_DIGITS: Final[Mapping[str, int]] = {"isk": 2, "ugx": 2, "mga": 0}
_DECIMAL: Final = re.compile(r"([0-9]{1,13})(?:([.,])([0-9]{1,3}))?", re.ASCII)
_HUNDREDTHS: Final = 2


def billed_units(value: object) -> int:
    """Return an amount as the biller counts it. Never guess, round or coerce money."""
    if type(value) is not int or not 0 <= value <= MINOR_UNITS_MAX:  # a bool is an int to isinstance
        raise UnusableEventError(DeliveryWarning.AMOUNT_UNUSABLE)
    return value


def billed_from_decimal(text: str, currency: str) -> int | None:
    """Return an amount such as `1234.50` as the biller counts it; None if it cannot be read without guessing."""
    digits = _BILLED_DIGITS.get(currency, minor_digits(currency))
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        return None
    whole, mark, fraction = found.group(1), found.group(2), found.group(3) or ""
    if mark == "," and not len(fraction) == digits == _HUNDREDTHS:  # It may separate thousands.
        return None
    fraction = fraction.rstrip("0").ljust(digits, "0")
    return int(whole + fraction) if len(fraction) == digits else None


def currency_code(value: object) -> str:
    code = value.lower() if isinstance(value, str) and value.isascii() else ""
    if not is_currency(code):
        raise UnusableEventError(DeliveryWarning.CURRENCY_UNUSABLE)
    return code


@cache
def scale_of(currency: str) -> Fraction:
    """Return the factor from a biller's units to minor units."""
    digits = minor_digits(currency)
    return Fraction(10) ** (digits - _BILLED_DIGITS.get(currency, digits))


def money_from_billed(units: int, currency: str) -> Money:
    """Convert an amount. Do not round it: a fraction of a minor unit cannot be booked."""
    exact = units * scale_of(currency)
    if exact.denominator != 1 or exact > MINOR_UNITS_MAX:
        raise UnusableEventError(DeliveryWarning.AMOUNT_UNUSABLE)
    return Money(exact.numerator, currency)


def rounded_money(parts: Iterable[Fraction], currency: str) -> Money:
    """Return the sum of exact parts in minor units, rounded half up. Rounding each part would drift."""
    total = int(sum(parts, Fraction(1, 2)) // 1)
    if not 0 <= total <= MINOR_UNITS_MAX:
        raise UnusableEventError(DeliveryWarning.AMOUNT_UNUSABLE)
    return Money(total, currency)


def exact_amount(amount: Fraction) -> int | str:
    """Return an amount as it is stored in a row's details: an integer if it is whole, else the fraction."""
    return amount.numerator if amount.denominator == 1 else str(amount)
