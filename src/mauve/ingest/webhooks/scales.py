"""From the units in which billers count money to the minor units of ISO 4217, in which all money is kept.

For most currencies the two are the same. Both billers send 5,000 Icelandic krónur as 500000, although a króna has no
hundredths, and count Malagasy ariary in whole ones, although ISO 4217 gives it two digits.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Final

from mauve.core.money import minor_digits
from mauve.ingest.webhooks.parsed import MINOR_UNITS_MAX, UnusableError
from mauve.ingest.webhooks.warnings import DeliveryWarning

# Those in which a biller counts other digits than ISO 4217. The two billers agree.
_BILLED_DIGITS: Final[Mapping[str, int]] = {"isk": 2, "ugx": 2, "mga": 0}


@cache
def scale_of(currency: str) -> Fraction:
    """Return what a biller's amount is multiplied by to have it in minor units."""
    digits = minor_digits(currency)
    return Fraction(10) ** (digits - _BILLED_DIGITS.get(currency, digits))


def scaled(amount: int, scale: Fraction) -> int:
    """Return an amount in minor units. Money is not rounded: with parts of a minor unit it cannot be booked."""
    exact = amount * scale
    if exact.denominator != 1 or exact > MINOR_UNITS_MAX:
        raise UnusableError(DeliveryWarning.AMOUNT_UNUSABLE)
    return exact.numerator
