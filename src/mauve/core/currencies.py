"""The currencies that money may be in: the current list of ISO 4217."""

from collections.abc import Mapping
from functools import cache


def is_currency(code: str) -> bool:
    """Tell whether this is a current ISO 4217 code in lowercase letters, such as `eur`."""
    return code in currency_codes()


@cache
def currency_codes() -> frozenset[str]:
    return frozenset(_digits_by_code())


def minor_digits(code: str) -> int:
    """Return how many digits of an amount in minor units stand behind the point: 2 for `eur`, 0 for `jpy`.

    Metals and other codes that have no minor unit have none; so has what is on no list.
    """
    return _digits_by_code().get(code) or 0


@cache
def _digits_by_code() -> Mapping[str, int | None]:
    from iso4217 import Currency  # noqa: PLC0415 - it parses XML; only who takes money should wait for it

    return {currency.value.lower(): currency.exponent for currency in Currency}
