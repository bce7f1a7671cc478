"""Orders and subscriptions of Polar, as its API lists them."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import BufferedReader
from typing import Any, Final

import msgspec

from mauve.core.biller import Provider
from mauve.core.times import parse_time_ms
from mauve.imports.billed import Json, objects_in, payments_from, versions_from
from mauve.imports.items import SKIPPED, Bad, Item, Target
from mauve.maintenance.errors import MaintenanceRefusedError

_NOT_AN_OBJECT: Final = Bad("this is neither an order nor a subscription: export lists of these with Polar's API")
_PAGE_STARTS: Final = re.compile(rb'\{\s*"(items|pagination)"')
_MONEY_MOVED: Final = frozenset({"paid", "refunded", "partially_refunded"})
_TIMES: Final = {
    "start_date": "started_at",
    "created": "created_at",
    "trial_end": "trial_end",
    "ended_at": "ended_at",
    "canceled_at": "canceled_at",
}


class _Pagination(msgspec.Struct, frozen=True):
    total_count: int


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    pagination: _Pagination


_PAGE: Final = msgspec.json.Decoder(_Page)


def read_polar(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every object of a list."""
    for row, found in enumerate(objects_in(file, _is_page, _objects_of_page)):
        yield SKIPPED if found == {} else _item(found, target, row)


def _is_page(head: bytes) -> bool:
    return _PAGE_STARTS.match(head) is not None


def _objects_of_page(document: bytes) -> list[msgspec.Raw]:
    page = _PAGE.decode(document)
    if len(page.items) < page.pagination.total_count:
        raise MaintenanceRefusedError(
            f"the file is one page of a longer list, with {len(page.items)} of {page.pagination.total_count} objects: "
            "export all pages into one file, as docs/importing.md shows"
        )
    return page.items


def _item(found: Json | None, target: Target, row: int) -> Item:
    if found is None:
        return _NOT_AN_OBJECT
    if "billing_reason" in found:
        # An order does not say when it was paid, and it is changed again by a refund.
        order = {**found, "modified_at": None}
        delivery = {"type": "order.paid", "timestamp": found.get("created_at"), "data": order}
        is_paid = str(found.get("status")) in _MONEY_MOVED
        return payments_from(Provider.BILLER_B, delivery, target) if is_paid else SKIPPED
    if "recurring_interval" not in found:
        return _NOT_AN_OBJECT
    subscription = found

    def delivery_of(at_s: int, status: str) -> Json:
        timestamp = datetime.fromtimestamp(at_s, UTC).isoformat()
        return {"type": "subscription.updated", "timestamp": timestamp, "data": {**subscription, "status": status}}

    return versions_from(Provider.BILLER_B, _times_of(subscription), delivery_of, target, row)


def _times_of(subscription: Mapping[str, Any]) -> Json:
    """Return the status and the times in epoch seconds, under the names of Stripe."""
    texts = {name: text for name, own in _TIMES.items() if isinstance(text := subscription.get(own), str)}
    times = {name: parse_time_ms(text) for name, text in texts.items()}
    seconds = {name: None if time is None else time // 1000 for name, time in times.items()}
    return {"status": subscription.get("status"), **seconds}
