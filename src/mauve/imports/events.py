"""Our own events, payments and subscription versions, one JSON object per line, as `mauve export` writes them."""

from collections.abc import Iterator
from io import BufferedReader
from typing import Final

import msgspec

from mauve.core.events import PAYMENT, Event, PropValue
from mauve.core.money import is_currency
from mauve.core.subscriptions import stored_status
from mauve.core.times import parse_time_us
from mauve.imports.files import lines_of
from mauve.imports.items import NO_TIME, SKIPPED, Bad, Item, Money, Target, item_from, time_fault
from mauve.ingest.faults import MINOR_UNITS_MAX, event_fault
from mauve.stores.imports import rank_of
from mauve.stores.ledger import SubscriptionVersion

_EVENT: Final = "event"
_SUBSCRIPTION: Final = "subscription"
_KINDS: Final = Bad('kind must be "event", "payment" or "subscription", or absent')
_NOT_JSON: Final = Bad("the line is not a JSON object")
# An export has the item as it was received. Keep that: within the line, an erasure would not find the person in it.
_NO_PAYLOAD: Final = msgspec.Raw(b"")


class _Line(Event, frozen=True, gc=False):
    kind: str = _EVENT
    counted: bool | int = True
    payload: msgspec.Raw = _NO_PAYLOAD


class _Kind(msgspec.Struct, frozen=True):
    kind: str = _EVENT


class _Payment(msgspec.Struct, frozen=True):
    """A payment whose money is not in props."""

    id: str
    amount: int
    currency: str
    earned: bool | None = None
    user: str | None = None
    at: str | int | None = None


class _Subscription(msgspec.Struct, frozen=True):
    id: str
    status: str
    mrr: int
    currency: str
    at: str | int
    at_us: int | None = None  # more exact than `at`
    customer: str | None = None
    plan: str | None = None
    payload: msgspec.Raw = _NO_PAYLOAD


_LINE: Final = msgspec.json.Decoder(_Line)
_KIND: Final = msgspec.json.Decoder(_Kind)
_PAYMENT: Final = msgspec.json.Decoder(_Payment)
_VERSION: Final = msgspec.json.Decoder(_Subscription)


def read_events(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every line."""
    for row, line in enumerate(lines_of(file)):
        try:
            found = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield _other_kind(line, row, target, error)
            continue
        if found.kind == _EVENT or (found.kind == PAYMENT and found.props):
            yield item_from(found, bytes(found.payload) or line, target) if found.counted else SKIPPED
        else:
            yield _other_kind(line, row, target, None)


def _other_kind(line: bytes, row: int, target: Target, error: Exception | None) -> Item:
    """Return what a line without the fields of an event becomes."""
    if not line.strip():
        return SKIPPED
    try:
        kind = _KIND.decode(line).kind
        if kind == PAYMENT:
            return _payment_from(_PAYMENT.decode(line), line, target)
        if kind == _SUBSCRIPTION:
            return _version_from(_VERSION.decode(line), line, row, target)
    except msgspec.ValidationError as fault:
        return Bad(f"a field is missing or wrong: {str(fault)[:200]}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOT_JSON
    return Bad(event_fault(str(error)).text) if kind == _EVENT and error is not None else _KINDS


def _payment_from(found: _Payment, line: bytes, target: Target) -> Item:
    props: dict[str, PropValue] = {"amount": found.amount, "currency": found.currency}
    if found.earned is False:
        props["earned"] = False
    return item_from(Event(PAYMENT, found.user, found.id, found.at, props=props), line, target)


def _version_from(found: _Subscription, line: bytes, row: int, target: Target) -> Item:
    at_us = found.at_us
    if at_us is None:
        at_us = parse_time_us(found.at) if isinstance(found.at, str) else found.at * 1000
    if at_us is None:
        return NO_TIME
    if not found.id or not 0 <= found.mrr <= MINOR_UNITS_MAX:
        return Bad(f"a subscription needs an id, and mrr as an integer of minor units from 0 to {MINOR_UNITS_MAX}")
    if not is_currency(found.currency.lower()):
        return Bad("currency is not an ISO 4217 code: use one such as eur")
    if (fault := time_fault(at_us // 1000, target)) is not None:
        return fault
    version = SubscriptionVersion(
        project=target.project,
        id=found.id,
        at=at_us,
        received_at=target.now_ms,
        status=stored_status(found.status),
        mrr=found.mrr,
        currency=found.currency.lower(),
        payload=bytes(found.payload) or line,
        rank=rank_of(target.number, row, 0),
        customer=found.customer,
        plan=found.plan,
    )
    return Money(subscriptions=(version,))
