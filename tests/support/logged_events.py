"""Decode what the rules pass on to the log."""

import msgspec

from mauve.core.events import EVENT, Event, is_object

_EVENTS = msgspec.json.Decoder(list[Event])


def events_in(items: bytes) -> list[Event]:
    """Return the events of a JSON object or an array of them."""
    return [EVENT.decode(items)] if is_object(items) else _EVENTS.decode(items)
