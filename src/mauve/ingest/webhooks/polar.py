"""Biller B: orders and subscriptions in Polar's format."""

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from mauve.core.biller import ID_PREFIXES, Provider
from mauve.core.times import parse_time_us
from mauve.ingest.webhooks.amounts import (
    billed_units,
    currency_code,
    exact_amount,
    money_from_billed,
    rounded_money,
    scale_of,
    stage_of,
    times_a_month,
)
from mauve.ingest.webhooks.bounded_json import Document, Fields, Shape, leaf, texts
from mauve.ingest.webhooks.parsed import (
    IGNORED,
    NO_MONEY,
    DeliveryWarning,
    Json,
    ParsedEvent,
    ParsedPayment,
    ParsedSubscription,
    first_present,
    optional_id,
    plan_text,
    read_object,
    required_id,
    status_text,
    value_at,
)

_ID_PREFIX: Final = ID_PREFIXES[Provider.BILLER_B]
_PAYMENT_TYPE: Final = "order.paid"
_SUBSCRIPTION_TYPES: Final = "subscription."
EVENT_TYPES: Final = (_PAYMENT_TYPE, f"{_SUBSCRIPTION_TYPES}*")
_ORDER_TEXTS: Final = ("billing_name", "billing_address", "custom_field_data", "description")
_SUBSCRIPTION_TEXTS: Final = ("customer_cancellation_comment", "custom_field_data")
_CUSTOMER_TEXTS: Final = ("name", "email", "billing_name")
_MICROSECONDS_MAX: Final = 253_402_300_800_000_000  # the end of the year 9999
_RANK_BYTES: Final = 8

EVENT: Final = Fields(type=leaf, timestamp=leaf, data=Document)
_SHARED: Final[Mapping[str, Shape]] = {
    **dict.fromkeys(("id", "currency", "amount", "customer_id", "created_at", "modified_at"), leaf),
    "customer": Fields(id=leaf, **dict.fromkeys(_CUSTOMER_TEXTS, texts)),
}
_ORDER: Final = Fields(
    **_SHARED,
    **dict.fromkeys(("net_amount", "total_amount", "tax_amount", "subscription_id"), leaf),
    **dict.fromkeys(_ORDER_TEXTS, texts),
    subscription=Fields(id=leaf),
)
_SUBSCRIPTION: Final = Fields(
    **_SHARED,
    **dict.fromkeys(("status", "recurring_interval", "recurring_interval_count", "product_id"), leaf),
    **dict.fromkeys(_SUBSCRIPTION_TEXTS, texts),
    product=Fields(name=leaf),
)


def parse_event(event: Json) -> ParsedEvent:
    type_, unread = event.get("type"), event.get("data")
    if type_ == _PAYMENT_TYPE:
        return _parse_payment(event, read_object(unread, _ORDER))
    if isinstance(type_, str) and type_.startswith(_SUBSCRIPTION_TYPES):
        return _parse_subscription(event, read_object(unread, _SUBSCRIPTION))
    return IGNORED


def is_live(_event: Json) -> None:
    """Return None: the sandbox is another host with its own secrets, and the payload does not show it."""
    return


def _parse_payment(event: Json, order: dict[str, Any]) -> ParsedEvent:
    amount, currency = billed_units(_amount_of(order)), currency_code(order.get("currency"))
    if amount == 0:
        return NO_MONEY
    paid_at = _time_of(event, order)
    return ParsedPayment(
        id=f"{_ID_PREFIX}{required_id(order.get('id'))}",
        user=_customer_of(order),
        amount=money_from_billed(amount, currency),
        fee=None,  # `platform_fee_amount` is what the biller keeps: a cost, not a marketplace's earnings.
        paid_at=None if paid_at is None else paid_at // 1000,
        details={"tax": _tax_of(order, currency), "subscription": _subscription_of(order)},
        texts=_texts_of(order, _ORDER_TEXTS),
    )


def _amount_of(order: Json) -> object:
    """Return what was paid without tax, which the biller remits itself."""
    total, tax = order.get("total_amount"), order.get("tax_amount")
    without_tax = total - tax if type(total) is int and type(tax) is int else None
    return first_present(order.get("net_amount"), without_tax, order.get("amount"), total)


def _subscription_of(order: Json) -> str | None:
    return optional_id(first_present(order.get("subscription_id"), order.get("subscription")))


def _parse_subscription(event: Json, subscription: dict[str, Any]) -> ParsedSubscription:
    often = times_a_month(subscription.get("recurring_interval"), subscription.get("recurring_interval_count"))
    currency, status = currency_code(subscription.get("currency")), status_text(subscription.get("status"))
    # Seats and discounts are already in the amount; metered prices are in it as 0.
    amount = billed_units(first_present(subscription.get("amount"), 0)) * scale_of(currency)
    monthly = amount * (often or Fraction(0))
    return ParsedSubscription(
        id=f"{_ID_PREFIX}{required_id(subscription.get('id'))}",
        status=status,
        mrr=rounded_money([monthly], currency),
        at=_time_of(event, subscription),
        rank=_rank_of(event, subscription, status),
        customer=_customer_of(subscription),
        plan=plan_text([first_present(value_at(subscription, "product", "name"), subscription.get("product_id"))]),
        details={"mrr_exact": str(monthly), "customer": _customer_of(subscription)},
        texts=_texts_of(subscription, _SUBSCRIPTION_TEXTS),
        warnings=(DeliveryWarning.UNKNOWN_INTERVAL,) if often is None else (),
    )


def _rank_of(event: Json, subscription: Json, status: str) -> bytes:
    """Order versions with the same time: by the row's last change, then by status, type and content.

    The envelope has no id, so the content itself breaks the last tie, byte for byte.
    """
    name = str(event.get("type")).removeprefix(_SUBSCRIPTION_TYPES)
    type_rank = {"created": 0, "updated": 2}.get(name, 1)
    changed_at = _epoch_us(subscription.get("modified_at")) or 0
    content = name.encode() + b"\0" + bytes(event["data"].raw)
    head = changed_at.to_bytes(_RANK_BYTES, "big") + bytes([stage_of(status), type_rank])
    return head + hashlib.sha256(content).digest()[:_RANK_BYTES]


def _time_of(event: Json, billed: Json) -> int | None:
    times = (event.get("timestamp"), billed.get("modified_at"), billed.get("created_at"))
    return first_present(*(_epoch_us(time) for time in times))  # type: ignore[no-any-return]


def _epoch_us(value: object) -> int | None:
    time = parse_time_us(value) if isinstance(value, str) else None
    return time if time is not None and 0 <= time < _MICROSECONDS_MAX else None


def _customer_of(billed: Json) -> str | None:
    return optional_id(first_present(billed.get("customer_id"), billed.get("customer")))


def _texts_of(billed: Json, names: tuple[str, ...]) -> dict[str, Any]:
    customer = {name: value_at(billed, "customer", name) for name in _CUSTOMER_TEXTS}
    return {"customer": customer} | {name: billed.get(name) for name in names}


def _tax_of(order: Json, currency: str) -> int | str | None:
    tax = order.get("tax_amount")
    return exact_amount(tax * scale_of(currency)) if type(tax) is int else None
