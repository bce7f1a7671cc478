"""Book what a biller's API lists, by the rules for the biller's webhooks.

A list shows a subscription as it is today and when it began and ended, but not what it cost in between: its MRR is
reconstructed from today's price, which is approximate.
"""

from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from typing import Any, Final

import msgspec

from mauve.core.biller import Provider
from mauve.imports.files import DOCUMENT_BYTES_MAX, lines_of
from mauve.imports.items import SKIPPED, Bad, Item, Money, Target, time_fault
from mauve.ingest.webhooks.billers import parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, as_claimed, map_delivery
from mauve.ingest.webhooks.parsed import DeliveryWarning, SkippedEvent, epoch_seconds
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.deliveries import DeliveryResult
from mauve.stores.imports import rank_of, source_of
from mauve.stores.ledger import Entry

_ENCODER: Final = msgspec.json.Encoder()
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_OTHER_MODE: Final = Bad("this belongs to the other mode: import test data with --test, and live data without it")
_NO_TIME: Final = Bad(
    "the time is missing or cannot be read, or is before 1970: correct it, or export the list from the biller again"
)
_NO_END: Final = Bad(
    "the time of the cancellation is missing or cannot be read: correct it, or export whole subscriptions again"
)
_NEVER_BEGAN: Final = frozenset({"incomplete", "incomplete_expired"})
_RUNS: Final = frozenset({"active", "trialing"})

Json = Mapping[str, Any]


def objects_in(
    file: BufferedReader, is_page: Callable[[bytes], bool], objects_of_page: Callable[[bytes], list[msgspec.Raw]]
) -> Iterator[Json | None]:
    """Yield each object of a page, an array, or lines; an empty one for an empty line, None for what is not an object.

    A page or an array is held in memory, so its size is limited.
    """
    head = file.peek(4096).lstrip()
    if not head.startswith(b"[") and not is_page(head):
        yield from map(_object_from, lines_of(file))
        return
    document = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise MaintenanceRefusedError(
            f"the list has more than {DOCUMENT_BYTES_MAX} bytes: write one object per line, for example with jq -c"
        )
    try:
        found = _ARRAY.decode(document) if head.startswith(b"[") else objects_of_page(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MaintenanceRefusedError(
            f"the file is not one list of the biller's API ({error}): export it again"
        ) from None
    yield from (_object_from(bytes(raw)) for raw in found)


def _object_from(text: bytes) -> Json | None:
    if not text.strip():
        return {}
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def payments_from(provider: Provider, delivery: Json, target: Target) -> Item:
    entry = _booked(provider, delivery, target)
    if not isinstance(entry, Entry):
        return entry
    if any(each.claimed_at is None for each in entry.payments):
        return _NO_TIME  # A webhook arrives when it happens; an import may come years later.
    source = source_of(target.number)
    faults = (time_fault(each.occurred_at, target) for each in entry.payments)
    own = tuple(msgspec.structs.replace(each, source=source) for each in entry.payments)
    return next((fault for fault in faults if fault is not None), None) or Money(payments=own)


def versions_from(
    provider: Provider, times: Json, delivery_of: Callable[[int, str], Json], target: Target, row: int
) -> Item:
    """Return the presumed history of a subscription. `delivery_of` returns what was delivered at a time and status."""
    if times.get("status") == "canceled" and _end_of(times) is None:
        return _NO_END
    versions = []
    for place, (at_s, status) in enumerate(statuses_of(times, target.now_ms // 1000)):
        entry = _booked(provider, delivery_of(at_s, status), target)
        if not isinstance(entry, Entry):
            return entry
        rank = rank_of(target.number, row, place)
        versions += [msgspec.structs.replace(each, rank=rank) for each in entry.subscriptions]
    return Money(subscriptions=tuple(versions)) if versions else Bad("created is missing: export whole subscriptions")


def statuses_of(subscription: Json, now_s: int) -> list[tuple[int, str]]:
    """Return when a subscription presumably had which status: from the beginning, after a trial, and since it ended."""
    status = str(subscription.get("status"))
    began, trial_ends = _first_time(subscription, "start_date", "created"), _first_time(subscription, "trial_end")
    ended = _end_of(subscription) if status == "canceled" else None
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


def _end_of(subscription: Json) -> int | None:
    return _first_time(subscription, "ended_at", "canceled_at")


def _first_time(subscription: Json, *names: str) -> int | None:
    times = (epoch_seconds(subscription.get(name)) for name in names)
    return next((time for time in times if time is not None), None)


def _booked(provider: Provider, delivery: Json, target: Target) -> Entry | Item:
    """Return what a delivery would be booked as."""
    endpoint = Endpoint(target.project, target.org_id, target.environment, provider)
    parsed = parse_delivery(provider, _ENCODER.encode(delivery), target.environment)
    if not isinstance(parsed.event, SkippedEvent):
        return map_delivery(parsed, endpoint, target.now_ms, as_claimed).entry
    if DeliveryWarning.PLANE_MISMATCH in parsed.event.warnings:
        return _OTHER_MODE
    if parsed.event.result is DeliveryResult.UNUSABLE:
        return Bad(f"it cannot be booked ({', '.join(parsed.event.warnings)}): see the words in docs/billing.md")
    return SKIPPED
