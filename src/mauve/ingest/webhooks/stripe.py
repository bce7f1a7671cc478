"""Biller A: invoices and subscriptions in Stripe's format, of every version of its API.

Fields have moved over the years. Read the new place first, then the old one, whatever version a payload claims.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from mauve.core.biller import ID_PREFIXES, Provider
from mauve.ingest.webhooks.amounts import (
    TERMINAL_STAGE,
    billed_units,
    currency_code,
    exact_amount,
    money_from_billed,
    rounded_money,
    scale_of,
    stage_of,
    times_a_month,
)
from mauve.ingest.webhooks.bounded_json import Document, Fields, Items, TooLong, leaf, texts
from mauve.ingest.webhooks.parsed import (
    IGNORED,
    NO_MONEY,
    DeliveryWarning,
    Json,
    ParsedEvent,
    ParsedPayment,
    ParsedSubscription,
    SkippedEvent,
    UnusableEventError,
    epoch_seconds,
    first_present,
    optional_id,
    plan_text,
    read_object,
    required_id,
    status_text,
    value_at,
)
from mauve.stores.deliveries import DeliveryResult

_ID_PREFIX: Final = ID_PREFIXES[Provider.BILLER_A]
_PAYMENT_TYPE: Final = "invoice.paid"
_SUBSCRIPTION_TYPES: Final = "customer.subscription."
EVENT_TYPES: Final = (_PAYMENT_TYPE, f"{_SUBSCRIPTION_TYPES}*")
# Several events of one operation share a second; this rank orders them.
_TYPE_RANKS: Final[Mapping[str, int]] = {"created": 0, "trial_will_end": 1, "pending_update_expired": 1, "deleted": 3}
_DEFAULT_TYPE_RANK: Final = 2
_INVOICE_TEXTS: Final = ("customer_name", "customer_email", "customer_phone", "customer_address", "description")
_SUBSCRIPTION_TEXTS: Final = ("description", "cancellation_details")
_ITEMS_MAX: Final = 200  # The biller allows twenty.
_TAXES_MAX: Final = 200
_DECIMAL: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_QUANTITY_MAX: Final = 2**53 - 1

_LINK: Final = Fields(id=leaf)  # an id, or an object in its place
EVENT: Final = Fields(
    **dict.fromkeys(("id", "object", "type", "created", "livemode"), leaf),
    account=_LINK,
    data=Fields(object=Document),
)
_TAXES: Final = Items(Fields(amount=leaf), _TAXES_MAX)
_INVOICE: Final = Fields(
    **dict.fromkeys(("id", "object", "status", "currency", "amount_paid", "total", "amount_due"), leaf),
    **dict.fromkeys(("application_fee_amount", "paid_out_of_band", "tax"), leaf),
    **dict.fromkeys(("customer", "customer_account", "subscription", "on_behalf_of"), _LINK),
    **dict.fromkeys(_INVOICE_TEXTS, texts),
    **dict.fromkeys(("total_taxes", "total_tax_amounts"), _TAXES),
    status_transitions=Fields(paid_at=leaf),
    parent=Fields(subscription_details=Fields(subscription=_LINK)),
)
_PACKING: Final = Fields(divide_by=leaf, round=leaf)
_PLAN: Final = Fields(
    **dict.fromkeys(("amount", "amount_decimal", "currency", "billing_scheme"), leaf),
    **dict.fromkeys(("id", "nickname", "interval", "interval_count", "usage_type"), leaf),
    transform_usage=_PACKING,
)
_PRICE: Final = Fields(
    **dict.fromkeys(("unit_amount", "unit_amount_decimal", "currency", "billing_scheme", "tax_behavior"), leaf),
    **dict.fromkeys(("id", "nickname", "lookup_key"), leaf),
    recurring=Fields(interval=leaf, interval_count=leaf, usage_type=leaf),
    transform_quantity=_PACKING,
)
_ITEM: Final = Fields(price=_PRICE, plan=_PLAN, quantity=leaf)
_SUBSCRIPTION: Final = Fields(
    **dict.fromkeys(("id", "object", "status", "currency", "quantity", "pause_collection"), leaf),
    **dict.fromkeys(("customer", "customer_account"), _LINK),
    **dict.fromkeys(_SUBSCRIPTION_TEXTS, texts),
    plan=_PLAN,
    items=Fields(data=Items(_ITEM, _ITEMS_MAX), has_more=leaf),
)


class _MonthlyCharge(NamedTuple):
    """A monthly amount in minor units, not rounded. The warning says why it is zero, or may be wrong."""

    amount: Fraction
    warning: DeliveryWarning | None = None


def parse_event(event: Json) -> ParsedEvent:
    if event.get("object") == "v2.core.event":
        # It names an invoice but does not hold it: the owner has to choose snapshot payloads.
        return SkippedEvent(DeliveryResult.IGNORED, (DeliveryWarning.THIN_EVENT,))
    type_, unread = event.get("type"), value_at(event, "data", "object")
    if type_ == _PAYMENT_TYPE:
        return _parse_payment(event, _checked("invoice", read_object(unread, _INVOICE)))
    if isinstance(type_, str) and type_.startswith(_SUBSCRIPTION_TYPES):
        return _parse_subscription(event, _checked("subscription", read_object(unread, _SUBSCRIPTION)))
    return IGNORED


def is_live(event: Json) -> bool | None:
    """Return whether the event claims to be live; None if it does not say."""
    livemode = event.get("livemode")
    return livemode if isinstance(livemode, bool) else None


def _checked(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    if first_present(found.get("object"), kind) != kind:
        raise UnusableEventError(DeliveryWarning.OBJECT_UNUSABLE)
    return found


def _parse_payment(event: Json, invoice: dict[str, Any]) -> ParsedEvent:
    if first_present(invoice.get("status"), "paid") != "paid":
        raise UnusableEventError(DeliveryWarning.STATUS_UNUSABLE)
    amount, currency = billed_units(_amount_of(invoice)), currency_code(invoice.get("currency"))
    if amount == 0:
        return NO_MONEY
    fee = billed_units(first_present(invoice.get("application_fee_amount"), 0))
    paid_at = first_present(
        epoch_seconds(value_at(invoice, "status_transitions", "paid_at")), epoch_seconds(event.get("created"))
    )
    return ParsedPayment(
        id=f"{_ID_PREFIX}{required_id(invoice.get('id'))}",
        user=_customer_of(invoice),
        amount=money_from_billed(amount, currency),
        fee=money_from_billed(fee, currency) if fee else None,
        paid_at=None if paid_at is None else paid_at * 1000,
        details=_event_details(event) | {"tax": _tax_of(invoice, currency), "subscription": _subscription_of(invoice)},
        texts={name: invoice.get(name) for name in _INVOICE_TEXTS},
        warnings=(DeliveryWarning.FEE_UNKNOWN,) if _may_hide_a_fee(event, invoice) else (),
    )


def _amount_of(invoice: Json) -> object:
    # Before 2025-03-31, `amount_paid` left out money paid outside the biller.
    if invoice.get("paid_out_of_band") is True:
        return first_present(invoice.get("amount_due"), invoice.get("total"))
    return first_present(invoice.get("amount_paid"), invoice.get("total"), invoice.get("amount_due"))


def _tax_of(invoice: Json, currency: str) -> int | str | None:
    """Return the tax included in the amount, if the invoice states it."""
    listed = first_present(invoice.get("total_taxes"), invoice.get("total_tax_amounts"))
    stated = [value_at(entry, "amount") for entry in listed] if isinstance(listed, list) else [invoice.get("tax")]
    amounts = [amount for amount in stated if type(amount) is int]
    return exact_amount(sum(amounts) * scale_of(currency)) if len(amounts) == len(stated) else None


def _subscription_of(invoice: Json) -> str | None:
    in_parent = value_at(invoice, "parent", "subscription_details", "subscription")
    return optional_id(first_present(in_parent, invoice.get("subscription")))


def _customer_of(billed: Json) -> str | None:
    return optional_id(first_present(billed.get("customer"), billed.get("customer_account")))


def _may_hide_a_fee(event: Json, invoice: Json) -> bool:
    """Return whether this is a marketplace invoice of an API version that does not show the marketplace's fee."""
    is_marketplace = bool(event.get("account") or invoice.get("on_behalf_of"))
    return is_marketplace and "application_fee_amount" not in invoice


def _parse_subscription(event: Json, subscription: dict[str, Any]) -> ParsedSubscription:
    items = _items_of(subscription)
    currency = currency_code(first_present(subscription.get("currency"), *(_currency_of(item) for item in items)))
    charges = [_monthly_charge(item, currency) for item in items]
    created, status = epoch_seconds(event.get("created")), status_text(subscription.get("status"))
    return ParsedSubscription(
        id=f"{_ID_PREFIX}{required_id(subscription.get('id'))}",
        status=_booked_status(subscription, status),
        mrr=rounded_money((charge.amount for charge in charges), currency),
        at=None if created is None else created * 1_000_000,
        rank=_rank_of(event, status),
        customer=_customer_of(subscription),
        plan=plan_text(_name_of(item) for item in items),
        details=_event_details(event)
        | {
            "mrr_exact": str(sum(charge.amount for charge in charges)),
            "customer": _customer_of(subscription),
            "status": status,
        },
        texts={name: subscription.get(name) for name in _SUBSCRIPTION_TEXTS},
        warnings=_warnings_of(subscription, items, charges),
    )


def _items_of(subscription: Json) -> list[Any]:
    items = value_at(subscription, "items", "data")
    if isinstance(items, TooLong):
        raise UnusableEventError(DeliveryWarning.ITEMS_TOO_MANY)
    if isinstance(items, list):
        return items
    # Before there were items, a subscription had one plan and a quantity.
    plan = subscription.get("plan")
    return [{"plan": plan, "quantity": subscription.get("quantity")}] if isinstance(plan, dict) else []


def _currency_of(item: object) -> object:
    return first_present(value_at(item, "price", "currency"), value_at(item, "plan", "currency"))


def _name_of(item: object) -> object:
    """Return what the owner calls the item's price, or else the price's id."""
    price, plan = value_at(item, "price"), value_at(item, "plan")
    names = (value_at(price, "nickname"), value_at(plan, "nickname"), value_at(price, "lookup_key"))
    return first_present(*(name or None for name in names), value_at(price, "id"), value_at(plan, "id"))


def _booked_status(subscription: Json, status: str) -> str:
    """Return the biller's status, or `paused` while collection is paused: nothing is charged then."""
    is_paused = bool(subscription.get("pause_collection")) and stage_of(status) != TERMINAL_STAGE
    return "paused" if is_paused else status


def _rank_of(event: Json, status: str) -> bytes:
    name = str(event.get("type")).removeprefix(_SUBSCRIPTION_TYPES)
    event_id = optional_id(event.get("id")) or ""
    return bytes([stage_of(status), _TYPE_RANKS.get(name, _DEFAULT_TYPE_RANK)]) + event_id.encode()


def _warnings_of(subscription: Json, items: list[Any], charges: list[_MonthlyCharge]) -> tuple[DeliveryWarning, ...]:
    warnings = {charge.warning for charge in charges if charge.warning is not None}
    if not items:
        warnings.add(DeliveryWarning.NO_ITEMS)
    if value_at(subscription, "items", "has_more") is True:
        warnings.add(DeliveryWarning.ITEMS_INCOMPLETE)
    return tuple(sorted(warnings))


def _event_details(event: Json) -> dict[str, Any]:
    return {
        "event": optional_id(event.get("id")),
        "account": optional_id(event.get("account")),
        "livemode": is_live(event),
    }


def _monthly_charge(item: object, currency: str) -> _MonthlyCharge:
    """Return what an item adds to MRR. An amount that cannot be known adds nothing, with a warning."""
    price = value_at(item, "price")
    if not isinstance(price, dict):
        price = _price_from_plan(value_at(item, "plan"))
    warning = _reason_for_nothing(price, currency)
    if warning is not None:
        return _MonthlyCharge(Fraction(0), warning)
    often = times_a_month(value_at(price, "recurring", "interval"), value_at(price, "recurring", "interval_count"))
    unit = _unit_amount(price)
    if often is None or unit is None:
        missing = DeliveryWarning.UNKNOWN_INTERVAL if often is None else DeliveryWarning.NO_AMOUNT
        return _MonthlyCharge(Fraction(0), missing)
    amount = unit * _billed_quantity(item, price) * often * scale_of(currency)
    return _MonthlyCharge(amount, DeliveryWarning.TAX_INCLUSIVE if price.get("tax_behavior") == "inclusive" else None)


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


def _price_from_plan(plan: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Convert the older form of a price to the newer one."""
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
    """Return the price of one unit, exactly; None if it is not stated."""
    decimal, whole = price.get("unit_amount_decimal"), price.get("unit_amount")
    if isinstance(decimal, str) and _DECIMAL.fullmatch(decimal):
        return Fraction(decimal)
    if decimal is None and whole is None:
        return None
    return Fraction(billed_units(first_present(whole, decimal)))


def _billed_quantity(item: object, price: dict[str, Any]) -> int:
    quantity = _quantity(first_present(value_at(item, "quantity"), 1))
    packing = price.get("transform_quantity")
    if not isinstance(packing, dict):
        return quantity
    pack = _quantity(packing.get("divide_by"))
    if pack == 0:
        raise UnusableEventError(DeliveryWarning.QUANTITY_UNUSABLE)
    return quantity // pack if packing.get("round") == "down" else -(-quantity // pack)


def _quantity(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _QUANTITY_MAX:
        raise UnusableEventError(DeliveryWarning.QUANTITY_UNUSABLE)
    return value
