"""Invoices and subscriptions of Stripe, as its API lists them.

They are booked by the rules for its webhooks. An invoice says what was paid and when. A subscription says how it is
today and when it began and ended, but not what it cost in between: its MRR is reconstructed from today's price, which
is approximate.
"""

from collections.abc import Iterator, Mapping
from io import BufferedReader
from typing import Any, Final

import msgspec

from mauve.core.biller import Provider
from mauve.history.files import DOCUMENT_BYTES_MAX, lines_of
from mauve.history.items import SKIPPED, Bad, Item, Money, Target, time_fault
from mauve.ingest.webhooks.billers import BILLERS, parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, as_claimed, map_delivery, skip_if_misdirected
from mauve.ingest.webhooks.parsed import SkippedEvent, epoch_seconds
from mauve.ingest.webhooks.warnings import DeliveryWarning
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.deliveries import DeliveryResult
from mauve.stores.imports import rank_of, source_of
from mauve.stores.ledger import Entry

_ENCODER: Final = msgspec.json.Encoder()
_NOT_AN_OBJECT: Final = Bad("this is neither an invoice nor a subscription: export lists of these with Stripe's API")
_OTHER_MODE: Final = Bad("this belongs to the other mode: import test data with --test, and live data without it")
_NEVER_BEGAN: Final = frozenset({"incomplete", "incomplete_expired"})
_RUNS: Final = frozenset({"active", "trialing"})


class _Page(msgspec.Struct, frozen=True):
    data: list[msgspec.Raw]


_PAGE: Final = msgspec.json.Decoder(_Page)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def read_stripe(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every object: one per line, or of one JSON list."""
    for row, text in enumerate(_objects(file)):
        yield _item(text, target, row) if text.strip() else SKIPPED


def _objects(file: BufferedReader) -> Iterator[bytes]:
    """Yield the text of each object. A document that is one list is read at once, so its size is bounded."""
    head = file.peek(4096).lstrip()
    if not head.startswith(b"[") and not _is_page(head):
        yield from lines_of(file)
        return
    document = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise MaintenanceRefusedError(
            f"the list has more than {DOCUMENT_BYTES_MAX} bytes: write one object per line, with jq -c '.data[]'"
        )
    try:
        raws = _ARRAY.decode(document) if head.startswith(b"[") else _PAGE.decode(document).data
    except (msgspec.DecodeError, RecursionError) as error:
        raise MaintenanceRefusedError(f"the file is not a list of Stripe's API ({error}): export it again") from None
    yield from map(bytes, raws)


def _is_page(head: bytes) -> bool:
    """Return whether a document begins like a page of a list, which states its type first or soon after."""
    before_data = head.partition(b'"data"')[0]
    return head.startswith(b"{") and b'"list"' in before_data.replace(b" ", b"")[:200]


def _item(text: bytes, target: Target, row: int) -> Item:
    try:
        found = _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOT_AN_OBJECT
    match found.get("object"):
        case "invoice":
            return _payments(found, target) if found.get("status") == "paid" else SKIPPED
        case "subscription":
            return _versions(found, target, row)
        case _:
            return _NOT_AN_OBJECT


def _payments(invoice: Mapping[str, Any], target: Target) -> Item:
    booked = _booked("invoice.paid", invoice, epoch_seconds(invoice.get("created")), target)
    if not isinstance(booked, Entry):
        return booked
    source = source_of(target.number)
    faults = (time_fault(each.occurred_at, target) for each in booked.payments)
    own = tuple(msgspec.structs.replace(each, source=source) for each in booked.payments)
    return next((fault for fault in faults if fault is not None), None) or Money(payments=own)


def _versions(subscription: Mapping[str, Any], target: Target, row: int) -> Item:
    versions = []
    for place, (at_s, status) in enumerate(statuses_of(subscription, target.now_ms // 1000)):
        booked = _booked("customer.subscription.updated", {**subscription, "status": status}, at_s, target)
        if not isinstance(booked, Entry):
            return booked
        rank = rank_of(target.number, row, place)
        versions += [msgspec.structs.replace(each, rank=rank) for each in booked.subscriptions]
    return Money(subscriptions=tuple(versions)) if versions else Bad("created is missing: export whole subscriptions")


def statuses_of(subscription: Mapping[str, Any], now_s: int) -> list[tuple[int, str]]:
    """Return when a subscription presumably had which status: from the beginning, after a trial, and since it ended."""
    status = str(subscription.get("status"))
    began, trial_ends = _first_time(subscription, "start_date", "created"), _first_time(subscription, "trial_end")
    ended = _first_time(subscription, "ended_at", "canceled_at") if status == "canceled" else None
    if began is None or began > now_s:
        return []
    if status in _NEVER_BEGAN:
        return [(began, status)]
    last = now_s if ended is None else max(ended, began)
    found = [(began, "active")]
    if trial_ends is not None and trial_ends > began:
        found = [(began, "trialing"), (trial_ends, "active")] if trial_ends < last else [(began, "trialing")]
    if ended is not None:
        found.append((last, status))
    elif status not in _RUNS:
        found.append((now_s, status))  # It is unknown since when.
    return found


def _first_time(subscription: Mapping[str, Any], *names: str) -> int | None:
    times = (epoch_seconds(subscription.get(name)) for name in names)
    return next((time for time in times if time is not None), None)


def _booked(type_: str, found: Mapping[str, Any], created: int | None, target: Target) -> Entry | Item:
    """Return what a delivery of this object would be booked as."""
    delivery = {"type": type_, "created": created, "livemode": found.get("livemode"), "data": {"object": found}}
    endpoint = Endpoint(target.project, target.org_id, target.environment, Provider.BILLER_A)
    parsed = parse_delivery(BILLERS[Provider.BILLER_A], _ENCODER.encode(delivery))
    parsed = skip_if_misdirected(parsed, target.environment)
    if not isinstance(parsed.event, SkippedEvent):
        return map_delivery(parsed, endpoint, target.now_ms, as_claimed).entry
    if DeliveryWarning.PLANE_MISMATCH in parsed.event.warnings:
        return _OTHER_MODE
    if parsed.event.result is DeliveryResult.UNUSABLE:
        return Bad(f"it cannot be booked ({', '.join(parsed.event.warnings)}): see the words in docs/billing.md")
    return SKIPPED
