"""Biller B: orders and subscriptions in Polar's format."""

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from mauve.core.times import parse_time_us
from mauve.ingest.webhooks.bounded_json import LEAF, TEXT, UNREAD, Document, Fields, Part
from mauve.ingest.webhooks.mrr import rounded_total, times_a_month
from mauve.ingest.webhooks.parsed import (
    IGNORED,
    NO_MONEY,
    BilledPayment,
    BilledSubscription,
    Json,
    Reading,
    UnusableError,
    currency_code,
    exact,
    first_present,
    found,
    held_in,
    minor_units,
    other_id,
    own_id,
    status_word,
)
from mauve.ingest.webhooks.scales import scale_of, scaled
from mauve.ingest.webhooks.ties import stage_of
from mauve.ingest.webhooks.warnings import DeliveryWarning

_SUBSCRIPTION_TYPES: Final = "subscription."
_ORDER_TEXTS: Final = ("billing_name", "billing_address", "custom_field_data", "description")
_SUBSCRIPTION_TEXTS: Final = ("customer_cancellation_comment", "custom_field_data")
_CUSTOMER_TEXTS: Final = ("name", "email", "billing_name")
_MICROSECONDS_MAX: Final = 253_402_300_800_000_000  # the end of the year 9999
_RANK_BYTES: Final = 8

EVENT: Final = Fields(type=LEAF, timestamp=LEAF, data=UNREAD)
_SHARED: Final[Mapping[str, Part]] = {
    **dict.fromkeys(("id", "currency", "amount", "customer_id", "created_at", "modified_at"), LEAF),
    "customer": Fields(id=LEAF, **dict.fromkeys(_CUSTOMER_TEXTS, TEXT)),
}
_ORDER: Final = Fields(
    **_SHARED,
    **dict.fromkeys(("net_amount", "total_amount", "tax_amount", "subscription_id"), LEAF),
    **dict.fromkeys(_ORDER_TEXTS, TEXT),
    subscription=Fields(id=LEAF),
)
_SUBSCRIPTION: Final = Fields(
    **_SHARED,
    **dict.fromkeys(("status", "recurring_interval", "recurring_interval_count"), LEAF),
    **dict.fromkeys(_SUBSCRIPTION_TEXTS, TEXT),
)


def reading_of(event: Json) -> Reading:
    type_, held = event.get("type"), event.get("data")
    if type_ == "order.paid":
        return _payment_from(event, _object_of(held_in(held, _ORDER)))
    if isinstance(type_, str) and type_.startswith(_SUBSCRIPTION_TYPES):
        return _subscription_from(event, _object_of(held_in(held, _SUBSCRIPTION)))
    return IGNORED


def is_live(_event: Json) -> None:
    """Tell nothing: the sandbox is another host with secrets of its own, and the payload does not show it."""
    return


def _object_of(held: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON may hold
    if not isinstance(held, dict):
        raise UnusableError(DeliveryWarning.OBJECT_UNUSABLE)
    return held


def _payment_from(event: Json, order: dict[str, Any]) -> Reading:
    amount, currency = minor_units(_amount_of(order)), currency_code(order.get("currency"))
    if amount == 0:
        return NO_MONEY
    paid_at, scale = _moment_of(event, order), scale_of(currency)
    return BilledPayment(
        id=f"polar:{own_id(order.get('id'))}",
        user=_customer_of(order),
        amount=scaled(amount, scale),
        currency=currency,
        fee=None,  # `platform_fee_amount` is what the biller keeps: a cost, not a marketplace's earning.
        paid_at=None if paid_at is None else paid_at // 1000,
        facts={"tax": _tax_of(order, scale), "subscription": _subscription_of(order)},
        texts=_texts_of(order, _ORDER_TEXTS),
    )


def _amount_of(order: Json) -> object:
    """Return what was paid without tax, which the biller remits itself."""
    total, tax = order.get("total_amount"), order.get("tax_amount")
    without_tax = total - tax if type(total) is int and type(tax) is int else None
    return first_present(order.get("net_amount"), without_tax, order.get("amount"), total)


def _subscription_of(order: Json) -> str | None:
    return other_id(first_present(order.get("subscription_id"), order.get("subscription")))


def _subscription_from(event: Json, held: dict[str, Any]) -> BilledSubscription:
    often = times_a_month(held.get("recurring_interval"), held.get("recurring_interval_count"))
    currency, status = currency_code(held.get("currency")), status_word(held.get("status"))
    # Seats and discount are in the amount already; metered prices are in it as 0.
    amount = minor_units(first_present(held.get("amount"), 0)) * scale_of(currency)
    monthly = amount * (often or Fraction(0))
    return BilledSubscription(
        id=f"polar:{own_id(held.get('id'))}",
        status=status,
        mrr=rounded_total([monthly]),
        currency=currency,
        at=_moment_of(event, held),
        rank=_rank_of(event, held, status),
        facts={"mrr_exact": str(monthly), "customer": _customer_of(held)},
        texts=_texts_of(held, _SUBSCRIPTION_TEXTS),
        flags=(DeliveryWarning.UNKNOWN_INTERVAL,) if often is None else (),
    )


def _rank_of(event: Json, held: Json, status: str) -> bytes:
    """Order what shares a moment: by the row's last change, then by state, then by type, then by content.

    The envelope has no id of its own, so the content itself breaks the last tie, byte for byte.
    """
    name = str(event.get("type")).removeprefix(_SUBSCRIPTION_TYPES)
    type_rank = {"created": 0, "updated": 2}.get(name, 1)
    changed_at = _epoch_us(held.get("modified_at")) or 0
    content = name.encode() + b"\0" + _bytes_of(event["data"])
    head = changed_at.to_bytes(_RANK_BYTES, "big") + bytes([stage_of(status), type_rank])
    return head + hashlib.sha256(content).digest()[:_RANK_BYTES]


def _bytes_of(document: Document) -> bytes:
    return bytes(document.raw)


def _moment_of(event: Json, held: Json) -> int | None:
    moments = (event.get("timestamp"), held.get("modified_at"), held.get("created_at"))
    return first_present(*(_epoch_us(moment) for moment in moments))  # type: ignore[no-any-return]


def _epoch_us(value: object) -> int | None:
    moment = parse_time_us(value) if isinstance(value, str) else None
    return moment if moment is not None and 0 <= moment < _MICROSECONDS_MAX else None


def _customer_of(held: Json) -> str | None:
    return other_id(first_present(held.get("customer_id"), held.get("customer")))


def _texts_of(held: Json, names: tuple[str, ...]) -> dict[str, Any]:
    customer = {name: found(held, "customer", name) for name in _CUSTOMER_TEXTS}
    return {"customer": customer} | {name: held.get(name) for name in names}


def _tax_of(order: Json, scale: Fraction) -> int | str | None:
    tax = order.get("tax_amount")
    return exact(tax * scale) if type(tax) is int else None
