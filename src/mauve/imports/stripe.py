"""Invoices and subscriptions of Stripe, as its API lists them, and the CSV files of its dashboard."""

import re
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from typing import Any, Final

import msgspec

from mauve.core.biller import Provider
from mauve.imports.billed import Json, objects_in, payments_from, versions_from
from mauve.imports.items import SKIPPED, Bad, Item, Target, csv_items
from mauve.imports.tables import utc_ms
from mauve.ingest.webhooks.amounts import billed_from_decimal
from mauve.maintenance.errors import MaintenanceRefusedError

Cells = Mapping[str, str]
ObjectFrom = Callable[[Cells], dict[str, Any] | Item]
_CREATED: Final = ("Created date (UTC)", "Created (UTC)", "Date (UTC)")
_STARTED: Final = ("Start Date (UTC)", "Start (UTC)", *_CREATED)
_MONEY_MOVED: Final = frozenset({"paid", "succeeded", "refunded", "partial refund", "partially refunded"})
_NO_MONEY: Final = frozenset(
    {
        *("failed", "canceled", "cancelled", "pending", "processing", "incomplete", "uncaptured", "blocked", "expired"),
        *("requires_payment_method", "requires_confirmation", "requires_action", "requires_capture"),
    }
)
_INTERVALS: Final = frozenset({"day", "week", "month", "year"})
_MODES: Final = {"live": True, "true": True, "test": False, "false": False}
_AMOUNT: Final = Bad("the amount cannot be read: it must be a number such as 1234.50, without other separators")
_TIME: Final = Bad("the time cannot be read: export the file again with times in UTC")
_MARKETPLACE: Final = Bad(
    "this is a marketplace's payment, whose fee the file does not show: import invoices from the API"
)
_SEVERAL: Final = Bad("the file does not show what this subscription costs in all: import subscriptions from the API")
_NOT_AN_OBJECT: Final = Bad("this is neither an invoice nor a subscription: export lists of these with Stripe's API")
_PAGE_STARTS: Final = re.compile(rb'\{\s*"(data|has_more)"')


def table_of(columns: Cells) -> ObjectFrom:
    """Return how to read the rows of a file with these columns."""
    if "Amount Paid" in columns:
        return _reading(_invoice, columns, ("Status", "Currency"), ("Paid At (UTC)", *_CREATED))
    if "Interval" in columns:
        return _reading(_subscription, columns, ("Status", "Currency", "Amount"), _STARTED)
    return _reading(_payment, columns, ("Status", "Currency", "Amount"), _CREATED)


def _reading(read: ObjectFrom, columns: Cells, needed: tuple[str, ...], times: tuple[str, ...]) -> ObjectFrom:
    missing = [name for name in needed if name not in columns]
    missing += [] if any(name in columns for name in times) else [times[0]]
    if missing:
        raise MaintenanceRefusedError(
            f"the file has no column {missing[0]!r}: export payments, invoices or subscriptions again from Stripe's "
            "dashboard, with all columns and times in UTC"
        )
    return read


def _payment(cells: Cells) -> dict[str, Any] | Item:
    """Return a charge as a paid invoice. One that belongs to an invoice has its id, as the webhook does."""
    status = cells["Status"].strip().lower()
    if status in _NO_MONEY or cells.get("Captured", "").lower() == "false":
        return SKIPPED
    if status not in _MONEY_MOVED:
        return Bad(f"the status {status[:40]!r} is not known: leave the row out if no money was received")
    fee = cells.get("Application Fee", "").strip(" 0.,")
    if fee or cells.get("Destination"):
        return _MARKETPLACE
    return _paid(cells, cells.get("Invoice ID") or cells["id"], cells["Amount"], cells.get("Customer ID"), _CREATED)


def _invoice(cells: Cells) -> dict[str, Any] | Item:
    if cells["Status"].strip().lower() != "paid":
        return SKIPPED
    found = _paid(cells, cells["id"], cells["Amount Paid"], cells.get("Customer"), ("Paid At (UTC)", *_CREATED))
    return {**found, "subscription": cells.get("Subscription") or None} if isinstance(found, dict) else found


def _paid(cells: Cells, id_: str, amount: str, customer: str | None, times: tuple[str, ...]) -> dict[str, Any] | Item:
    currency, paid_at = cells["Currency"].strip().lower(), _seconds(cells, *times)
    billed = billed_from_decimal(amount, currency)
    if billed is None or paid_at is None:
        return _AMOUNT if billed is None else _TIME
    return {
        "object": "invoice",
        "id": id_,
        "status": "paid",
        "currency": currency,
        "amount_paid": billed,
        "customer": customer or None,
        "livemode": _livemode(cells),
        "status_transitions": {"paid_at": paid_at},
    }


def _subscription(cells: Cells) -> dict[str, Any] | Item:
    currency, interval = cells["Currency"].strip().lower(), cells["Interval"].strip().lower()
    amount, began = billed_from_decimal(cells["Amount"], currency), _seconds(cells, *_STARTED)
    # The file does not say whether the amount is that of one unit or of all.
    if interval not in _INTERVALS or (cells.get("Quantity") or "1").strip() != "1" or not cells["Amount"].strip():
        return _SEVERAL
    if amount is None or began is None:
        return _AMOUNT if amount is None else _TIME
    plan = {"id": cells.get("Plan") or None, "amount": amount, "currency": currency, "interval": interval}
    return {
        "object": "subscription",
        "id": cells["id"],
        "status": cells["Status"].strip().lower(),
        "currency": currency,
        "customer": cells.get("Customer ID") or None,
        "livemode": _livemode(cells),
        "created": began,
        "trial_end": _seconds(cells, "Trial End (UTC)"),
        "ended_at": _seconds(cells, "Ended At (UTC)"),
        "canceled_at": _seconds(cells, "Canceled At (UTC)"),
        "plan": plan,
        "quantity": 1,
    }


def _livemode(cells: Cells) -> bool | None:
    return _MODES.get((cells.get("Mode") or cells.get("Livemode") or "").strip().lower())


def _seconds(cells: Cells, *columns: str) -> int | None:
    """Return the first of these times that the row states."""
    text = next((cells[name] for name in columns if cells.get(name)), "")
    found = utc_ms(text)
    return None if found is None else found // 1000


class _Page(msgspec.Struct, frozen=True):
    data: list[msgspec.Raw]
    has_more: bool = False


_PAGE: Final = msgspec.json.Decoder(_Page)


def read_stripe(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every object of a list, or for every row of a CSV file."""
    if file.peek(4096).lstrip()[:1] not in {b"{", b"["}:
        yield from _read_csv(file, target)
        return
    for row, found in enumerate(objects_in(file, _is_page, _objects_of_page)):
        yield SKIPPED if found == {} else _item(found, target, row)


def _read_csv(file: BufferedReader, target: Target) -> Iterator[Item]:
    object_from: ObjectFrom | None = None

    def item_of(row: int, cells: Cells) -> Item:
        nonlocal object_from
        object_from = object_from or table_of(cells)
        found = object_from(cells)
        return _item(found, target, row) if isinstance(found, dict) else found

    return csv_items(file, ["id"], item_of)


def _is_page(head: bytes) -> bool:
    """Return whether a document begins like a page of a list, which states its type first or soon after."""
    before_data = head.partition(b'"data"')[0]
    is_list = head.startswith(b"{") and b'"list"' in before_data.replace(b" ", b"")[:200]
    return is_list or _PAGE_STARTS.match(head) is not None


def _objects_of_page(document: bytes) -> list[msgspec.Raw]:
    page = _PAGE.decode(document)
    if page.has_more:
        count = len(page.data)
        raise MaintenanceRefusedError(
            f"the file is one page of a longer list, with {count} object{'s' * (count != 1)} and has_more: "
            "export all pages into one file, as docs/importing.md shows"
        )
    return page.data


def _item(found: Json | None, target: Target, row: int) -> Item:
    if found is None or str(found.get("object")) not in {"invoice", "subscription"}:
        return _NOT_AN_OBJECT
    if found["object"] == "invoice":
        delivery = _delivery("invoice.paid", found, found.get("created"))
        return payments_from(Provider.BILLER_A, delivery, target) if found.get("status") == "paid" else SKIPPED

    def delivery_of(at_s: int, status: str) -> Json:
        return _delivery("customer.subscription.updated", {**found, "status": status}, at_s)

    return versions_from(Provider.BILLER_A, found, delivery_of, target, row)


def _delivery(type_: str, found: Json, created: object) -> Json:
    return {"type": type_, "created": created, "livemode": found.get("livemode"), "data": {"object": found}}
