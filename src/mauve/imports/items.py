"""What a row of a file becomes: an event, money, figures of another tool, or the reason why it is left out. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any, Final

import msgspec

from mauve.core.app import Environment
from mauve.core.events import EVENT, PAYMENT, Event, PropValue
from mauve.core.times import FUTURE_MAX_MS, parse_time_ms
from mauve.imports.files import csv_rows
from mauve.ingest.faults import event_fault, payment_fault
from mauve.ingest.rules import payment_from
from mauve.stores.imports import Figure, source_of
from mauve.stores.ledger import Payment, SubscriptionVersion

_ENCODER: Final = msgspec.json.Encoder()
_PROPS_MAX: Final = 100
_TEXT_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and how they are read."""

    project: str  # public id
    org_id: str
    environment: Environment
    now_ms: int
    number: int = 0  # of the import; 0 while a file is only checked
    columns: Mapping[str, str] = field(default_factory=dict)  # field of an event → column of a CSV file
    times: str = "iso"  # how a CSV file writes times
    renames: Mapping[str, str] = field(default_factory=dict)  # old names of events → new ones


class ImportedEvent(msgspec.Struct, frozen=True, gc=False):
    name: str
    at: int  # epoch ms
    user: str  # empty if absent
    id: str
    props: bytes  # a JSON object, empty if absent


class Money(msgspec.Struct, frozen=True, gc=False):
    payments: Sequence[Payment] = ()
    subscriptions: Sequence[SubscriptionVersion] = ()


class Figures(msgspec.Struct, frozen=True, gc=False):
    figures: Sequence[Figure] = ()


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A row that is well-formed and holds nothing to import."""


class Bad(msgspec.Struct, frozen=True, gc=False):
    """A row that cannot be imported. The reason says what to do, and never repeats a value."""

    reason: str


Item = ImportedEvent | Money | Figures | Skipped | Bad
SKIPPED: Final = Skipped()
_WRONG_CELLS: Final = Bad("the row has more or fewer cells than the header: correct it, or export the table again")
NO_TIME: Final = Bad("at is required: an RFC 3339 date-time with an offset, or an integer of epoch milliseconds")
_PAST: Final = Bad("the time is before 1970: check how the file writes times")
_FUTURE: Final = Bad("the time is in the future: check how the file writes times")


def csv_items(
    file: BufferedReader, needed: Sequence[str], item_of: Callable[[int, dict[str, str]], Item]
) -> Iterator[Item]:
    """Yield an item for every row of a CSV file with a header that has the needed columns."""
    for row, cells in enumerate(csv_rows(file, needed)):
        if cells:
            yield item_of(row, cells)
        else:
            yield _WRONG_CELLS if cells is None else SKIPPED


def time_fault(at_ms: int, target: Target) -> Bad | None:
    """Return the fault of a time that no history has."""
    if at_ms < 0:
        return _PAST
    return _FUTURE if at_ms > target.now_ms + FUTURE_MAX_MS else None


def item_from(event: Event, raw: bytes, target: Target) -> Item:
    """Return an event with its own time, however old, or the payment that it is."""
    at = None if event.at is None else parse_time_ms(event.at)
    if at is None:
        return NO_TIME
    if (fault := time_fault(at, target)) is not None:
        return fault
    if target.renames:
        event = msgspec.structs.replace(event, name=target.renames.get(event.name, event.name))
    if event.name == PAYMENT:
        return _payment(event, at, raw, target)
    return ImportedEvent(
        event.name, at, event.user or "", event.id or "", _ENCODER.encode(event.props) if event.props else b""
    )


def _payment(event: Event, at_ms: int, raw: bytes, target: Target) -> Item:
    fault = payment_fault(event.id, event.props or {})
    if fault is not None:
        return Bad(fault.text)
    payment = payment_from(
        event,
        raw,
        org_id=target.org_id,
        project=target.project,
        occurred_at=at_ms,
        received_at=target.now_ms,
        sent=_payment_as_sent(raw, event),
        source=source_of(target.number),
    )
    return Money(payments=(payment,))


def _payment_as_sent(raw: bytes, event: Event) -> Event:
    """Return the payment that a client sent, which an export holds beside the booked one, or else the row itself.

    A retry is compared with it. Ignore one that does not fit the row: someone has edited the file.
    """
    try:
        sent = EVENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return event  # A biller's, or that of a person who was erased.
    return sent if _booked(sent) == _booked(event) else event


def _booked(payment: Event) -> tuple[object, ...]:
    props = payment.props or {}
    is_earned = props.get("earned") is not False
    return payment.name, payment.user or None, payment.id, props.get("amount"), props.get("currency"), is_earned


def event_from(fields: Mapping[str, Any], target: Target) -> Item:
    """Return what a row of named fields becomes, by the rules of the events API."""
    try:
        event = EVENT.decode(raw := _ENCODER.encode(fields))
    except msgspec.ValidationError as error:
        return Bad(event_fault(str(error)).text)
    return item_from(event, raw, target)


def flat_props(found: Mapping[str, Any]) -> dict[str, PropValue]:
    """Return the values that our props can hold: one level, texts cut to their limit, the tool's own names last."""
    names = sorted(found, key=lambda name: name.startswith("$"))
    simple = [name for name in names if isinstance(found[name], str | int | float | bool)]
    return {name: _cut(found[name]) for name in simple[:_PROPS_MAX]}


def _cut(value: PropValue) -> PropValue:
    return value[:_TEXT_MAX] if isinstance(value, str) else value
