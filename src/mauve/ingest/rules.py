"""The contract's rules for events and subscriptions, as pure functions.

A whole request fails with a `Problem`; an item fails with a reason that names the field and never echoes a value.
"""

import hashlib
import re
from collections.abc import Sequence
from itertools import repeat
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta, Raw

from mauve.core.credential import KeyKind
from mauve.core.events import EVENT, PAYMENT, DatedEvent, Event, dated_events_in
from mauve.core.money import is_currency
from mauve.core.problems import Code, Fault, Problem
from mauve.core.subscriptions import stored_status
from mauve.core.times import occurred_at, parse_time_ms, parse_time_us
from mauve.ingest import wire
from mauve.ingest.faults import (
    AT_INVALID,
    MINOR_UNITS_MAX,
    NEEDS_SERVER_KEY,
    OBJECT_AT_INVALID,
    SENT_AT_INVALID,
    UNKNOWN_CURRENCY,
    event_fault,
    object_fault,
    payment_fault,
    type_fault,
)
from mauve.ingest.hints import (
    NO_HINTS,
    Hints,
    dated,
    may_misname_time,
    resembles_signup,
    scan_times,
    status_hints,
    time_hints,
    with_misnamed_times,
    with_misspelled_signups,
)
from mauve.stores.ledger import CLIENT, Payment, SubscriptionVersion
from mauve.stores.published import PublishedKey

_CLAIM_MAX: Final = 2**62  # beyond any calendar, and fits a 64-bit column


class Rejection(msgspec.Struct, frozen=True, gc=False):
    index: int  # zero-based, in the batch
    fault: Fault


class EventsVerdict(msgspec.Struct, frozen=True):
    events: bytes | None  # for the log: one JSON object, or an array of them
    event_count: int
    payments: list[tuple[int, Payment]]  # each with its index
    rejections: list[Rejection]
    item_count: int
    hints: Hints = NO_HINTS


class ObjectsVerdict(msgspec.Struct, frozen=True):
    subscriptions: list[tuple[int, SubscriptionVersion]]  # each with its index
    rejections: list[Rejection]
    item_count: int
    hints: Hints = NO_HINTS


class _Named(msgspec.Struct, frozen=True, gc=False):
    name: Any = None


class _Typed(msgspec.Struct, frozen=True, gc=False):
    type: Any = None


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """The state of a subscription. The latest `at` wins; unknown fields are ignored."""

    type: Annotated[str, Meta(description="No other type is supported.", extra_json_schema={"const": "subscription"})]
    id: Annotated[
        str, Meta(min_length=1, description="The subscription's stable id at the biller.", examples=["sub_1"])
    ]
    status: Annotated[
        str,
        Meta(
            description="Free text; only `active` counts toward MRR. Other usual values: trialing, past_due, canceled.",
            examples=["active"],
        ),
    ]
    mrr: Annotated[
        int,
        Meta(
            ge=0, le=MINOR_UNITS_MAX, description="Minor units per month. For an annual plan, the amount divided by 12."
        ),
    ]
    currency: Annotated[str, Meta(description="In upper or lower case; stored in lowercase.")]
    at: Annotated[
        Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None,
        Meta(description="The time of this version. Defaults to the time of arrival."),
    ] = None


_Judged = Event | DatedEvent

_NAMED: Final = msgspec.json.Decoder(_Named)
_TYPED: Final = msgspec.json.Decoder(_Typed)
_SUBSCRIPTION: Final = msgspec.json.Decoder(Subscription)
_BARE_OFFSET: Final = re.compile(rb':\d\d(?:\.\d+)?[+-]\d{4}"')
_CANONICAL: Final = msgspec.json.Encoder(order="deterministic")


def judge_events(body: bytes, key: PublishedKey, received_at: int) -> EventsVerdict:
    """Return the events, payments and rejections of a write to `/v1/events`, or raise the problem of the whole body."""
    wire.require_utf8(body)
    events, remarkable = _valid_events(body, received_at)
    if events is not None and _can_log_unchanged(body, events):
        hints = _event_hints(time_hints(remarkable, received_at, events), events, body)
        return EventsVerdict(body if events else None, len(events), [], [], len(events), hints)
    items = wire.split(body)
    if items.text is not body:
        events, remarkable = _valid_events(items.text, received_at)
    if key.kind is KeyKind.PUBLISHABLE and all(map(_is_named_payment, items.raws)):
        raise Problem(Code.FORBIDDEN, NEEDS_SERVER_KEY.text)
    kept: list[Raw] = []
    payments: list[tuple[int, Payment]] = []
    rejections: list[Rejection] = []
    known = events or repeat(None)
    judgements = [_judge_event(raw, event, key) for raw, event in zip(items.raws, known, strict=False)]
    for index, fault in {**items.faults, **wire.size_faults(items.raws, len(body))}.items():
        judgements[index] = fault
    for index, judged in enumerate(judgements):
        if judged.__class__ is Fault:
            rejections.append(Rejection(index, judged))
        elif judged.__class__ is Event and judged.name == PAYMENT:
            payments.append((index, _payment(items.raws[index], judged, key, received_at)))
        else:
            kept.append(items.raws[index])
    accepted = [cast("_Judged", judged) for judged in judgements if judged.__class__ is not Fault]
    if events is None or (remarkable and rejections):
        _, remarkable = scan_times(dated(accepted), received_at)
    logged = body if len(kept) == len(items.raws) else b"[" + b",".join(kept) + b"]"
    taken = [*kept, *(items.raws[index] for index, _ in payments)] if rejections else []
    hints = time_hints(remarkable, received_at, judgements)
    hints = _event_hints(hints, accepted, b"[" + b",".join(taken) + b"]" if taken else body)
    return EventsVerdict(logged if kept else None, len(kept), payments, rejections, len(items.raws), hints)


def judge_objects(body: bytes, key: PublishedKey, received_at: int) -> ObjectsVerdict:
    """Return the subscriptions and rejections of a write to `/v1/objects`, or raise the problem of the whole body."""
    wire.require_utf8(body)
    items = wire.split(body)
    subscriptions: list[tuple[int, SubscriptionVersion]] = []
    rejections: list[Rejection] = []
    for index, raw in enumerate(items.raws):
        judged = items.faults.get(index) or _judge_object(raw, key, received_at)
        if isinstance(judged, Fault):
            rejections.append(Rejection(index, judged))
        else:
            subscriptions.append((index, judged))
    hints = status_hints(version.status for _, version in subscriptions)
    return ObjectsVerdict(subscriptions, rejections, len(items.raws), hints)


def claimed_time(at_ms: int | None) -> int | None:
    """Return the time of a payment by its sender's clock, as it is stored."""
    return None if at_ms is None else min(max(at_ms, -_CLAIM_MAX), _CLAIM_MAX)


def payment_digest(payment: Event) -> bytes:
    """Return the same digest for equal payments, however their keys are ordered and their numbers written.

    Digests are stored forever, so the form must never change: do not leave the format of floats to a library.
    """
    props: dict[str, object] = dict(payment.props or {})
    if float in map(type, props.values()):
        props = {name: _canonical(value) if isinstance(value, float) else value for name, value in props.items()}
    if props.get("earned") is not False:
        props.pop("earned", None)
    return hashlib.sha256(_CANONICAL.encode([payment.name, payment.user or None, payment.id, props])).digest()


def _canonical(number: float) -> int | list[str]:
    """Return the integer of the same value, or the exact float in a form that no other value has."""
    return int(number) if number.is_integer() else [number.hex()]


def _valid_events(body: bytes, received_at: int) -> tuple[list[DatedEvent] | None, list[DatedEvent]]:
    """Return the events if one fast pass shows that all of them are valid, and those whose times are remarkable."""
    try:
        events = dated_events_in(body)
    except (msgspec.DecodeError, RecursionError):
        return None, []
    has_offset, remarkable = scan_times(events, received_at)
    # msgspec accepts an offset that is written as +0100, and the contract does not.
    may_lack_colon = (has_offset or b"+" in body) and _BARE_OFFSET.search(body) is not None
    return (None, []) if may_lack_colon else (events, remarkable)


def _can_log_unchanged(body: bytes, events: Sequence[DatedEvent]) -> bool:
    """Return whether this is the common case: only valid events, none of which can be too large."""
    if len(body) > wire.ITEM_BYTES_MAX or len(events) > wire.ITEMS_MAX:
        return False
    if len(events) == 1:
        return events[0].name != PAYMENT
    return PAYMENT not in [event.name for event in events]


def _event_hints(hints: Hints, accepted: Sequence[_Judged], text: bytes) -> Hints:
    """Add the hints about names of fields and events, given the text of all accepted events."""
    if accepted and accepted[0].at is None and may_misname_time(text):
        hints = with_misnamed_times(hints, text)
    if any(map(resembles_signup, {event.name for event in accepted})):
        hints = with_misspelled_signups(hints, (event.name for event in accepted))
    return hints


def _is_named_payment(raw: Raw) -> bool:
    try:
        return bool(_NAMED.decode(raw).name == PAYMENT)
    except (msgspec.DecodeError, RecursionError):
        return False


def _judge_event(raw: Raw, judged: DatedEvent | None, key: PublishedKey) -> _Judged | Fault:
    """Return the accepted event or payment, or the fault."""
    if judged is not None and judged.name != PAYMENT:
        return judged
    try:
        event = EVENT.decode(raw)
    except msgspec.ValidationError as error:
        return event_fault(str(error))
    except RecursionError:
        return wire.TOO_DEEP
    if (fault := _time_fault(event)) is not None:
        return fault
    return event if event.name != PAYMENT else _fault_of_payment(raw, event, key) or event


def _time_fault(event: Event) -> Fault | None:
    if event.at is not None and parse_time_ms(event.at) is None:
        return AT_INVALID
    if event.sent_at is not None and parse_time_ms(event.sent_at) is None:
        return SENT_AT_INVALID
    return None


def _fault_of_payment(raw: Raw, event: Event, key: PublishedKey) -> Fault | None:
    if key.kind is not KeyKind.SERVER:
        return NEEDS_SERVER_KEY
    return payment_fault(event.id, event.props or {}) or wire.repeated_key_fault(raw)


def _payment(raw: Raw, event: Event, key: PublishedKey, received_at: int) -> Payment:
    at, sent_at = _time_ms(event.at), _time_ms(event.sent_at)
    at_ms = occurred_at(at, sent_at, received_at)
    return payment_from(
        event, bytes(raw), org_id=key.org_id, project=key.public_id, occurred_at=at_ms, received_at=received_at
    )


def payment_from(
    event: Event,
    payload: bytes,
    *,
    org_id: str,
    project: str,
    occurred_at: int,
    received_at: int,
    sent: Event | None = None,
    source: str = CLIENT,
) -> Payment:
    """Return the payment of an event without a fault. A retry is compared with the event as it was sent."""
    props, sent = event.props or {}, sent or event
    return Payment(
        org_id=org_id,
        project=project,
        id=cast("str", event.id),
        digest=payment_digest(sent),
        claimed_at=claimed_time(_time_ms(sent.at)),
        amount=cast("int", props["amount"]),
        currency=cast("str", props["currency"]),
        earned=props.get("earned") is not False,
        user=event.user or None,
        occurred_at=occurred_at,
        received_at=received_at,
        payload=payload,
        source=source,
    )


def _time_ms(value: str | int | None) -> int | None:
    return None if value is None else parse_time_ms(value)


def _wrong_type(raw: Raw) -> Fault | None:
    try:
        return type_fault(_TYPED.decode(raw).type)
    except (msgspec.DecodeError, RecursionError):
        return None


def _judge_object(raw: Raw, key: PublishedKey, received_at: int) -> SubscriptionVersion | Fault:
    try:
        read = _SUBSCRIPTION.decode(raw)
    except msgspec.ValidationError as error:
        return _wrong_type(raw) or object_fault(str(error))
    except RecursionError:
        return wire.TOO_DEEP
    if (fault := type_fault(read.type)) is not None:
        return fault
    at = received_at * 1000 if read.at is None else parse_time_us(read.at)
    if at is None:
        return OBJECT_AT_INVALID
    if not (read.currency.isascii() and is_currency(read.currency.lower())):
        return UNKNOWN_CURRENCY
    return wire.repeated_key_fault(raw) or SubscriptionVersion(
        project=key.public_id,
        id=read.id,
        at=at,
        received_at=received_at,
        status=stored_status(read.status),
        mrr=read.mrr,
        currency=read.currency.lower(),
        payload=bytes(raw),
    )
