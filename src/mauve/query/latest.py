"""The events that arrived last: never kept, read together with all who look at the same project."""

from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from mauve.core.window import Window, today_at
from mauve.query.answer import Answer, Freshness
from mauve.query.ask import UNAVAILABLE, cannot_be_read
from mauve.query.parts import QueryParts
from mauve.stores.warehouse import StoredEvent

_LOOK_BACK: Final = timedelta(days=1)  # Older events arrive too, but looking for them would read the whole project.
_AHEAD: Final = timedelta(days=1)  # Clocks of clients run fast.

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(list[StoredEvent])


async def latest_events(parts: QueryParts, project: str, events_max: int) -> list[StoredEvent]:
    now_ms = parts.clock.now_ms()
    read = partial(_read, parts, project, events_max, now_ms)
    try:
        answer = await parts.warehouse_flights.join(("latest", project, events_max), read)
    except UNAVAILABLE:
        raise cannot_be_read() from None
    return _decoder.decode(answer.body)


def _read(parts: QueryParts, project: str, events_max: int, now_ms: int) -> Answer:
    today = today_at(now_ms)
    events = parts.warehouse.latest_events(project, Window(today - _LOOK_BACK, today + _AHEAD), events_max)
    return Answer(_encoder.encode(events), Freshness.UNCACHED, now_ms)
