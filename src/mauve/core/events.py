"""The event as it comes over the wire and stands in the log.

The types hold every rule that a type can hold; `ingest.rules` adds the others. Integers keep any size up to the
4,300 digits that Python reads; lengths are code points; unknown fields are skipped.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

PAYMENT: Final = "payment"
SIGNUP: Final = "user_signup"

_JSON_SPACE: Final = b" \t\n\r"

PropValue = Annotated[str, Meta(max_length=1024)] | int | float | bool | None


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. Null equals absent in every optional field, and so does "" in `user` and `id`."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    user: Annotated[str, Meta(max_length=256)] | None = None
    id: Annotated[str, Meta(max_length=256)] | None = None
    at: str | int | None = None
    sent_at: str | int | None = None
    props: Annotated[dict[str, PropValue], Meta(max_length=100)] | None = None


_Moment = Annotated[datetime, Meta(tz=True)] | int | None


class DatedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event whose times are judged by msgspec too, in a tenth of the time.

    It refuses leap seconds, which are times, and takes an offset without its colon, which is none.
    """

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    user: Annotated[str, Meta(max_length=256)] | None = None
    id: Annotated[str, Meta(max_length=256)] | None = None
    at: _Moment = None
    sent_at: _Moment = None
    props: Annotated[dict[str, PropValue], Meta(max_length=100)] | None = None


EVENT: Final = msgspec.json.Decoder(Event)
EVENTS: Final = msgspec.json.Decoder(list[Event])
_DATED_EVENT: Final = msgspec.json.Decoder(DatedEvent)
_DATED_EVENTS: Final = msgspec.json.Decoder(list[DatedEvent])


def events_in(items: bytes) -> list[Event]:
    """Return the events of one JSON object or of an array of them; raise `msgspec.DecodeError` if one is not."""
    return [EVENT.decode(items)] if is_object(items) else EVENTS.decode(items)


def dated_events_in(items: bytes) -> list[DatedEvent]:
    return [_DATED_EVENT.decode(items)] if is_object(items) else _DATED_EVENTS.decode(items)


def is_object(text: bytes) -> bool:
    """Tell whether a JSON text, if it is one, is an object."""
    return text.startswith(b"{") or text.lstrip(_JSON_SPACE).startswith(b"{")


class Activity(StrEnum):
    """By a behavioural event, or by signing up."""

    ACTIVE = "active"
    SIGNUP = "signup"
