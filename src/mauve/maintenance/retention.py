"""Raw event retention: anonymize old raw events; they still count."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date, timedelta
from typing import Final

import msgspec
import structlog

from mauve.core.clock import Clock
from mauve.core.times import DAY_MS
from mauve.stores.maintenance import WarehouseMaintenance

CHECK_EVERY_S: Final = 3600.0
_EPOCH: Final = date(1970, 1, 1)

log = structlog.get_logger()


class Forgotten(msgspec.Struct, frozen=True):
    before: str  # YYYY-MM-DD: raw events of earlier days are anonymous
    events: int
    at: int  # epoch ms


def first_day_kept(now_ms: int, days: int) -> date:
    """Return the oldest UTC day whose raw events are kept: today and the given number of days before it."""
    return _EPOCH + timedelta(days=max(0, now_ms // DAY_MS - days))


class Retention:
    """Anonymizes old raw events once per UTC day, on one of the machines that share a warehouse."""

    def __init__(
        self,
        days: int,
        open_warehouse: Callable[[], AbstractContextManager[WarehouseMaintenance]],
        clock: Clock,
        record: Callable[[Forgotten], None],
        last_elsewhere: Callable[[], Forgotten | None] = lambda: None,
    ) -> None:
        self._days = days
        self._open_warehouse = open_warehouse
        self._clock = clock
        self._record = record
        self._last_elsewhere = last_elsewhere
        self._done: date | None = None

    def forget_if_due(self) -> None:
        now = self._clock.now_ms()
        before = first_day_kept(now, self._days)
        if not self._days or before == self._done:
            return
        last = self._last_elsewhere()
        if last is not None and last.before == before.isoformat():
            self._done = before
            return
        with self._open_warehouse() as warehouse:
            events = warehouse.anonymize_raw_before(before)
        log.info("raw_events_forgotten", before=before.isoformat(), events=events, kept_days=self._days)
        self._record(Forgotten(before.isoformat(), events, now))
        self._done = before
