"""The events that arrived last: never kept, read together with all who look at the same project."""

from datetime import timedelta
from functools import partial
from typing import Final

from mauve.core.window import Window, today_at
from mauve.query.ask import UNAVAILABLE, cannot_be_read, whose
from mauve.query.parts import QueryParts
from mauve.stores.warehouse import StoredEvent

_LOOK_BACK: Final = timedelta(days=7)  # Nothing that arrives is dated earlier.
_AHEAD: Final = timedelta(days=1)  # Clocks of clients run fast.


async def latest_events(parts: QueryParts, project: str, events_max: int) -> list[StoredEvent]:
    today = today_at(parts.clock.now_ms())
    window = Window(today - _LOOK_BACK, today + _AHEAD)
    read = partial(parts.stores.warehouse.latest_events, project, window, events_max)
    try:
        return await parts.warehouse_flights.join(whose(parts, project), ("latest", project, events_max), read)
    except UNAVAILABLE:
        raise cannot_be_read() from None
