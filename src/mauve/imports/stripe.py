"""Invoices and subscriptions of Stripe, as its API lists them, and the CSV files of its dashboard."""

import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Final

import msgspec

from mauve.core.biller import Provider
from mauve.imports.billed import Json, objects_in, payments_from, versions_from
from mauve.imports.items import SKIPPED, Bad, Item, Target, csv_items
from mauve.imports.stripe_csv import Cells, ObjectFrom, table_of
from mauve.maintenance.errors import MaintenanceRefusedError

_NOT_AN_OBJECT: Final = Bad("this is neither an invoice nor a subscription: export lists of these with Stripe's API")
_PAGE_STARTS: Final = re.compile(rb'\{\s*"(data|has_more)"')


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
