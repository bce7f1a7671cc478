"""What one item of a biller A subscription comes to in a month."""

import re
from fractions import Fraction
from typing import Any, Final, NamedTuple

from mauve.ingest.webhooks.bounded_json import LEAF, Fields, TooLong
from mauve.ingest.webhooks.mrr import times_a_month
from mauve.ingest.webhooks.parsed import UnusableError, first_present, found, minor_units
from mauve.ingest.webhooks.warnings import DeliveryWarning

_DECIMAL: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_COUNT_MAX: Final = 2**53 - 1
_PACKING: Final = Fields(divide_by=LEAF, round=LEAF)

PLAN: Final = Fields(
    **dict.fromkeys(("amount", "amount_decimal", "currency", "billing_scheme"), LEAF),
    **dict.fromkeys(("interval", "interval_count", "usage_type"), LEAF),
    transform_usage=_PACKING,
)
_PRICE: Final = Fields(
    **dict.fromkeys(("unit_amount", "unit_amount_decimal", "currency", "billing_scheme", "tax_behavior"), LEAF),
    recurring=Fields(interval=LEAF, interval_count=LEAF, usage_type=LEAF),
    transform_quantity=_PACKING,
)
ITEM: Final = Fields(price=_PRICE, plan=PLAN, quantity=LEAF)


class Charge(NamedTuple):
    """A monthly amount, not rounded. The flag says why it is nothing, or how far to trust it."""

    monthly: Fraction
    flag: DeliveryWarning | None = None


def charge_of(item: object, currency: str, scale: Fraction) -> Charge:
    """Return what an item adds, in minor units. What cannot be known adds nothing, and says so."""
    price = found(item, "price")
    if not isinstance(price, dict):
        price = _price_from_plan(found(item, "plan"))
    flag = _reason_for_nothing(price, currency)
    if flag is not None:
        return Charge(Fraction(0), flag)
    often = times_a_month(found(price, "recurring", "interval"), found(price, "recurring", "interval_count"))
    unit = _unit_amount(price)
    if often is None or unit is None:
        return Charge(Fraction(0), DeliveryWarning.UNKNOWN_INTERVAL if often is None else DeliveryWarning.NO_AMOUNT)
    monthly = unit * _billed_quantity(item, price) * often * scale
    return Charge(monthly, DeliveryWarning.TAX_INCLUSIVE if price.get("tax_behavior") == "inclusive" else None)


def _reason_for_nothing(price: dict[str, Any], currency: str) -> DeliveryWarning | None:
    listed_in = price.get("currency")
    if not isinstance(price.get("recurring"), dict):
        return DeliveryWarning.ONE_TIME
    if price["recurring"].get("usage_type") == "metered":
        return DeliveryWarning.METERED
    if price.get("billing_scheme") == "tiered":
        return DeliveryWarning.TIERED  # The tiers themselves are not delivered.
    if isinstance(listed_in, TooLong) or (isinstance(listed_in, str) and listed_in.lower() != currency):
        return DeliveryWarning.OTHER_CURRENCY
    return None


def _price_from_plan(plan: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON may hold
    """Return the older way to state a price in the words of the newer one."""
    if not isinstance(plan, dict):
        return {}
    return {
        "unit_amount": plan.get("amount"),
        "unit_amount_decimal": plan.get("amount_decimal"),
        "currency": plan.get("currency"),
        "billing_scheme": plan.get("billing_scheme"),
        "transform_quantity": plan.get("transform_usage"),
        "recurring": {name: plan.get(name) for name in ("interval", "interval_count", "usage_type")},
    }


def _unit_amount(price: dict[str, Any]) -> Fraction | None:
    """Return the price of one, in minor units and their fractions; None if it is not stated."""
    decimal, whole = price.get("unit_amount_decimal"), price.get("unit_amount")
    if isinstance(decimal, str) and _DECIMAL.fullmatch(decimal):
        return Fraction(decimal)
    if decimal is None and whole is None:
        return None
    return Fraction(minor_units(first_present(whole, decimal)))


def _billed_quantity(item: object, price: dict[str, Any]) -> int:
    quantity = _count(first_present(found(item, "quantity"), 1))
    packing = price.get("transform_quantity")
    if not isinstance(packing, dict):
        return quantity
    pack = _count(packing.get("divide_by"))
    if pack == 0:
        raise UnusableError(DeliveryWarning.QUANTITY_UNUSABLE)
    return quantity // pack if packing.get("round") == "down" else -(-quantity // pack)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _COUNT_MAX:
        raise UnusableError(DeliveryWarning.QUANTITY_UNUSABLE)
    return value
