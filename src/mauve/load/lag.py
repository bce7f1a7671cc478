"""Whether loading is behind: an acknowledged record has been waiting longer than promised."""

import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol

import structlog

from mauve.core.batch import arrival_of
from mauve.core.clock import CLOCK_SLACK_MS, Clock
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log import MIXED_STREAM, RECORD_NUMBER_MAX, LogReader


def ends_of(ledger: LoadLedger, source: LogReader) -> dict[int, int]:
    """Return a number for each stream that no record acknowledged so far exceeds."""
    return {stream: source.last_number(stream) for stream in source.streams()} | {
        MIXED_STREAM: ledger.last_event_number()
    }


def are_loaded(ends: Mapping[int, int], ledger: LoadLedger, source: LogReader) -> bool:
    """Return whether every record up to these ends is loaded. An end may exceed the number of the last record."""
    positions = ledger.positions()
    for stream, end in ends.items():
        after = positions.get(stream, 0)
        if after >= end:
            continue
        if stream == MIXED_STREAM:
            waiting = any(record.number <= end for record in ledger.read_events(after, bytes_max=1)[:1])
        else:
            waiting = any(True for _ in source.records(stream, after, end))
        if waiting:
            return False
    return True


SLACK_S: Final = 3.0  # A step may be slow, and a record may just miss one.
_LOOK_EVERY_S: Final = 1.0

log = structlog.get_logger()


class Progress(Protocol):
    @property
    def is_catching_up(self) -> bool: ...

    @property
    def caught_up_s_ago(self) -> float | None: ...


class LoadLag:
    """Thread-safe.

    The loader's own progress usually decides. If it is inconclusive, because loading has just started, hangs or
    fails, look for the oldest waiting record: at most once a second, because that reads files.
    """

    def __init__(
        self, progress: Progress, oldest_waiting_at: Callable[[], int | None], clock: Clock, flush_s: float
    ) -> None:
        self._progress = progress
        self._oldest_waiting_at = oldest_waiting_at
        self._clock = clock
        self._late_s = flush_s + SLACK_S
        self._started_at = clock.now_us()
        self._looking = threading.Lock()
        self._looked_at_s: float | None = None
        self._is_late = True

    def is_behind(self) -> bool:
        """Return whether a waiting record arrived before the start or too long ago. Unknown counts as behind."""
        caught_up_s_ago = self._progress.caught_up_s_ago
        if caught_up_s_ago is not None and caught_up_s_ago <= self._late_s:
            return False
        return self._progress.is_catching_up or self._look()

    def _look(self) -> bool:
        with self._looking:
            now_s = time.monotonic()
            if self._looked_at_s is None or now_s - self._looked_at_s >= _LOOK_EVERY_S:
                self._is_late = self._finds_late_record()
                self._looked_at_s = time.monotonic()
            return self._is_late

    def _finds_late_record(self) -> bool:
        try:
            oldest = self._oldest_waiting_at()
        except Exception as error:  # noqa: BLE001 - any failure means unknown
            log.warning("load_lag_unknown", reason=str(error))
            return True
        now = self._clock.now_us()
        late_before = max(self._started_at, now - int(self._late_s * 1_000_000))
        # A time far in the future means that the clock was set back.
        return oldest is not None and (oldest < late_before or oldest > now + CLOCK_SLACK_MS * 1000)


def oldest_waiting_at(ledger: LoadLedger, source: LogReader) -> int | None:
    """Return when the oldest unloaded record arrived, in epoch microseconds; None if there is none."""
    positions = ledger.positions()
    waiting = ledger.read_events(positions.get(MIXED_STREAM, 0), bytes_max=1)[:1]
    for stream in source.streams():
        waiting += islice(source.records(stream, positions.get(stream, 0), RECORD_NUMBER_MAX), 1)
    return min((arrival_of(record.payload) for record in waiting), default=None)
