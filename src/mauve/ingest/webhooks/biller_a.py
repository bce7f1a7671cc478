"""Biller A: invoices and subscriptions in Stripe's format, of every version of its API.

Fields have moved over the years. The new place is read, else the old one, whatever version a payload claims to have.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from mauve.ingest.webhooks.bounded_json import LEAF, TEXT, UNREAD, Fields, Items, TooLong
from mauve.ingest.webhooks.mrr import rounded_total
from mauve.ingest.webhooks.parsed import (
    IGNORED,
    NO_MONEY,
    BilledPayment,
    BilledSubscription,
    Json,
    Reading,
    Skipped,
    UnusableError,
    currency_code,
    epoch_seconds,
    exact,
    first_present,
    found,
    held_in,
    minor_units,
    other_id,
    own_id,
    status_word,
)
from mauve.ingest.webhooks.price_a import ITEM, PLAN, Charge, charge_of
from mauve.ingest.webhooks.scales import scale_of, scaled
from mauve.ingest.webhooks.ties import stage_of
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.stores.deliveries import DeliveryResult

_SUBSCRIPTION_TYPES: Final = "customer.subscription."
# Several events of one operation share a second; these tell which of them speaks last.
_TYPE_RANKS: Final[Mapping[str, int]] = {"created": 0, "trial_will_end": 1, "pending_update_expired": 1, "deleted": 3}
_USUAL_TYPE_RANK: Final = 2
_INVOICE_TEXTS: Final = ("customer_name", "customer_email", "customer_phone", "customer_address", "description")
_SUBSCRIPTION_TEXTS: Final = ("description", "cancellation_details")
_TERMINAL: Final = 2
_ITEMS_MAX: Final = 200  # The biller allows twenty.
_TAXES_MAX: Final = 200

_LINK: Final = Fields(id=LEAF)  # an id, or an object in its place
EVENT: Final = Fields(
    **dict.fromkeys(("id", "object", "type", "created", "livemode"), LEAF),
    account=_LINK,
    data=Fields(object=UNREAD),
)
_TAXES: Final = Items(Fields(amount=LEAF), _TAXES_MAX)
_INVOICE: Final = Fields(
    **dict.fromkeys(("id", "object", "status", "currency", "amount_paid", "total", "amount_due"), LEAF),
    **dict.fromkeys(("application_fee_amount", "paid_out_of_band", "tax"), LEAF),
    **dict.fromkeys(("customer", "customer_account", "subscription", "on_behalf_of"), _LINK),
    **dict.fromkeys(_INVOICE_TEXTS, TEXT),
    **dict.fromkeys(("total_taxes", "total_tax_amounts"), _TAXES),
    status_transitions=Fields(paid_at=LEAF),
    parent=Fields(subscription_details=Fields(subscription=_LINK)),
)
_SUBSCRIPTION: Final = Fields(
    **dict.fromkeys(("id", "object", "status", "currency", "quantity", "pause_collection"), LEAF),
    **dict.fromkeys(("customer", "customer_account"), _LINK),
    **dict.fromkeys(_SUBSCRIPTION_TEXTS, TEXT),
    plan=PLAN,
    items=Fields(data=Items(ITEM, _ITEMS_MAX), has_more=LEAF),
)


def reading_of(event: Json) -> Reading:
    if event.get("object") == "v2.core.event":
        # It names an invoice and does not hold it: the owner has to choose snapshot payloads.
        return Skipped(DeliveryResult.IGNORED, (DeliveryWarning.THIN_EVENT,))
    type_, held = event.get("type"), found(event, "data", "object")
    if type_ == "invoice.paid":
        return _payment_from(event, _object_of("invoice", held_in(held, _INVOICE)))
    if isinstance(type_, str) and type_.startswith(_SUBSCRIPTION_TYPES):
        return _subscription_from(event, _object_of("subscription", held_in(held, _SUBSCRIPTION)))
    return IGNORED


def is_live(event: Json) -> bool | None:
    """Tell which plane the event says it is of."""
    livemode = event.get("livemode")
    return livemode if isinstance(livemode, bool) else None


def _object_of(kind: str, held: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON may hold
    if not isinstance(held, dict) or first_present(held.get("object"), kind) != kind:
        raise UnusableError(DeliveryWarning.OBJECT_UNUSABLE)
    return held


def _payment_from(event: Json, invoice: dict[str, Any]) -> Reading:
    if first_present(invoice.get("status"), "paid") != "paid":
        raise UnusableError(DeliveryWarning.STATUS_UNUSABLE)
    amount, currency = minor_units(_amount_of(invoice)), currency_code(invoice.get("currency"))
    if amount == 0:
        return NO_MONEY
    fee = minor_units(first_present(invoice.get("application_fee_amount"), 0))
    scale = scale_of(currency)
    paid_at = first_present(
        epoch_seconds(found(invoice, "status_transitions", "paid_at")), epoch_seconds(event.get("created"))
    )
    return BilledPayment(
        id=f"stripe:{own_id(invoice.get('id'))}",
        user=_customer_of(invoice),
        amount=scaled(amount, scale),
        currency=currency,
        fee=scaled(fee, scale) or None,
        paid_at=None if paid_at is None else paid_at * 1000,
        facts=_facts_of(event) | {"tax": _tax_of(invoice, scale), "subscription": _subscription_of(invoice)},
        texts={name: invoice.get(name) for name in _INVOICE_TEXTS},
        flags=(DeliveryWarning.FEE_UNKNOWN,) if _may_hide_a_fee(event, invoice) else (),
    )


def _amount_of(invoice: Json) -> object:
    # Before 2025-03-31 money that went around the biller was not in `amount_paid`.
    if invoice.get("paid_out_of_band") is True:
        return first_present(invoice.get("amount_due"), invoice.get("total"))
    return first_present(invoice.get("amount_paid"), invoice.get("total"), invoice.get("amount_due"))


def _tax_of(invoice: Json, scale: Fraction) -> int | str | None:
    """Return the tax inside the amount, where the invoice tells."""
    listed = first_present(invoice.get("total_taxes"), invoice.get("total_tax_amounts"))
    stated = [found(entry, "amount") for entry in listed] if isinstance(listed, list) else [invoice.get("tax")]
    amounts = [amount for amount in stated if type(amount) is int]
    return exact(sum(amounts) * scale) if len(amounts) == len(stated) else None


def _subscription_of(invoice: Json) -> str | None:
    in_parent = found(invoice, "parent", "subscription_details", "subscription")
    return other_id(first_present(in_parent, invoice.get("subscription")))


def _customer_of(held: Json) -> str | None:
    return other_id(first_present(held.get("customer"), held.get("customer_account")))


def _may_hide_a_fee(event: Json, invoice: Json) -> bool:
    """Tell a marketplace's invoice of an API version whose invoices do not show the marketplace's fee."""
    is_marketplace = bool(event.get("account") or invoice.get("on_behalf_of"))
    return is_marketplace and "application_fee_amount" not in invoice


def _subscription_from(event: Json, held: dict[str, Any]) -> BilledSubscription:
    items = _items_of(held)
    currency = currency_code(first_present(held.get("currency"), *(_currency_of(item) for item in items)))
    scale = scale_of(currency)
    charges = [charge_of(item, currency, scale) for item in items]
    created, status = epoch_seconds(event.get("created")), status_word(held.get("status"))
    return BilledSubscription(
        id=f"stripe:{own_id(held.get('id'))}",
        status=_booked_status(held, status),
        mrr=rounded_total(charge.monthly for charge in charges),
        currency=currency,
        at=None if created is None else created * 1_000_000,
        rank=_rank_of(event, status),
        facts=_facts_of(event) | {"mrr_exact": _exact(charges), "customer": _customer_of(held), "status": status},
        texts={name: held.get(name) for name in _SUBSCRIPTION_TEXTS},
        flags=_flags_of(held, items, charges),
    )


def _items_of(held: Json) -> list[Any]:
    items = found(held, "items", "data")
    if isinstance(items, TooLong):
        raise UnusableError(DeliveryWarning.ITEMS_TOO_MANY)
    if isinstance(items, list):
        return items
    # Before there were items, a subscription had one plan and a quantity of its own.
    return [{"plan": held["plan"], "quantity": held.get("quantity")}] if isinstance(held.get("plan"), dict) else []


def _currency_of(item: object) -> object:
    return first_present(found(item, "price", "currency"), found(item, "plan", "currency"))


def _booked_status(held: Json, status: str) -> str:
    """Return the biller's own word, except that nobody is charged while collection is paused."""
    is_paused = bool(held.get("pause_collection")) and stage_of(status) != _TERMINAL
    return "paused" if is_paused else status


def _rank_of(event: Json, status: str) -> bytes:
    name = str(event.get("type")).removeprefix(_SUBSCRIPTION_TYPES)
    event_id = other_id(event.get("id")) or ""
    return bytes([stage_of(status), _TYPE_RANKS.get(name, _USUAL_TYPE_RANK)]) + event_id.encode()


def _flags_of(held: Json, items: list[Any], charges: list[Charge]) -> tuple[DeliveryWarning, ...]:
    flags = {charge.flag for charge in charges if charge.flag is not None}
    if not items:
        flags.add(DeliveryWarning.NO_ITEMS)
    if found(held, "items", "has_more") is True:
        flags.add(DeliveryWarning.ITEMS_INCOMPLETE)
    return tuple(sorted(flags))


def _exact(charges: list[Charge]) -> str:
    return str(sum(charge.monthly for charge in charges))


def _facts_of(event: Json) -> dict[str, Any]:
    return {
        "event": other_id(event.get("id")),
        "account": other_id(event.get("account")),
        "livemode": is_live(event),
    }
