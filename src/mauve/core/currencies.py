"""The currencies that money may be in: the current list of ISO 4217."""

from functools import cache


def is_currency(code: str) -> bool:
    """Tell whether this is a current ISO 4217 code in lowercase letters, such as `eur`."""
    return code in currency_codes()


@cache
def currency_codes() -> frozenset[str]:
    from iso4217 import Currency  # noqa: PLC0415 - it parses XML; only who takes money should wait for it

    return frozenset(currency.value.lower() for currency in Currency)
