"""Run the loader: open it, retry failures, and export its metrics to Prometheus."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from mauve.core.clock import Clock
from mauve.core.window import today_at
from mauve.load.lag import are_loaded, ends_of
from mauve.load.lease import LoaderLease
from mauve.load.loader import DayCloser, Loader
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import LeaseLostError
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log import MIXED_STREAM, LogReader
from mauve.stores.warehouse import WarehouseUnavailableError

_RETRY_S: Final = 0.02
_FOLLOW_UP_EVERY_S: Final = 1.0
OTHER_LOADER_S_MAX: Final = 120.0
_OTHER_LOADER_EVERY_S: Final = 0.2
_FAILURES_MAX: Final = 3  # in a row, before this loader yields to another

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LoadParts:
    loader: Loader
    lease: LoaderLease
    days: DayCloser
    clock: Clock
    source: LogReader
    ledger: LoadLedger
    note_first_event: Callable[[str, int], None]
    close: Callable[[], None]


class LoadMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.records = Counter("mauve_records_loaded", "Log records loaded", registry=registry)
        self.repeats = Gauge(
            "mauve_events_repeated", "Events not counted because their id was a repeat", registry=registry
        )
        self.seconds = Gauge("mauve_load_seconds", "Duration of the last load", registry=registry)
        self.lag_seconds = Gauge("mauve_load_lag_seconds", "Time since the loader last caught up", registry=registry)
        self.backlog_bytes = Gauge("mauve_log_bytes", "Bytes of records waiting to be loaded", registry=registry)
        self.dead_letters = Gauge("mauve_dead_letters", "Records that could not be loaded", registry=registry)
        self.quarantined = Gauge("mauve_log_damaged_records", "Damaged records quarantined", registry=registry)
        self.lost = Gauge("mauve_log_lost_messages", "Log messages deleted before they were loaded", registry=registry)
        self.reach_s = Gauge("mauve_log_reach_seconds", "How far back the log reaches, on NATS", registry=registry)


class LoadRunner:
    """Runs one step at a time, in one thread, and retries failures. Without the lease, a step tries to acquire it."""

    def __init__(self, open_parts: Callable[[], LoadParts], metrics: LoadMetrics) -> None:
        self._open_parts = open_parts
        self._metrics = metrics
        self._parts: LoadParts | None = None
        self._caught_up_at = self._range_began_at = time.monotonic()
        self._has_caught_up = False  # since this process started
        self.is_catching_up = False  # The log still held records after the last range.
        self._backlog_bytes = 0
        self._followed_up_at = 0.0
        self._stopping = threading.Event()
        self._failures = 0  # in a row
        self.has_warehouse = True  # It answered when it was last needed.
        self._is_active: bool | None = None  # None: has not tried to acquire the lease yet
        self._step_lock = threading.Lock()
        self._pause_lock = threading.Lock()  # held by the one caller that is next to pause
        self._pause_requested = False
        self._work: int | None = None
        self._works = itertools.count()

    def work(self) -> int | None:
        """Return a number that identifies the range or follow-up in progress; None if there is none.

        Opening the warehouse does not count: it may have to migrate large tables.
        """
        return self._work

    @property
    def caught_up_s_ago(self) -> float | None:
        """Return how long ago everything received so far was loaded; None if never since the start."""
        return time.monotonic() - self._caught_up_at if self._has_caught_up else None

    def step(self) -> None:
        """Load until the log is empty or a pause is requested, then report first events to the catalog."""
        try:
            self._step()
        except WarehouseUnavailableError:
            self.has_warehouse = False
            raise
        self.has_warehouse = True

    def _step(self) -> None:
        with self._step_lock:
            if self._stopping.is_set():
                self._end_turn()
                return
            parts = self._opened()
            began = time.monotonic()
            try:
                self._load_all(parts)
                if self._is_active:
                    with self._watched():
                        self._follow_up(parts)
                self._failures = 0
            except LeaseLostError:
                parts.lease.lose()
                self._note_turn(is_active=False)
            except Exception:
                self._note_failure(parts)
                raise
            finally:
                if self._stopping.is_set():
                    self._end_turn()
                if self._is_active:  # A standby must not miss a free lease while waiting for an unresponsive log.
                    self._measure(parts, time.monotonic() - began)

    def _note_failure(self, parts: LoadParts) -> None:
        """Reacquire the lease, because another loader may have taken over. After several failures, yield it.

        Another loader may reach servers that this one cannot.
        """
        self._failures += 1
        if self._failures < _FAILURES_MAX:
            parts.lease.lose()
            return
        self._failures = 0
        parts.lease.give_way()

    def _end_turn(self) -> None:
        """Release the lease permanently: another machine takes over while this one finishes its requests."""
        if self._parts is not None:
            self._parts.lease.close()

    def _has_turn(self, parts: LoadParts) -> bool:
        """Try to acquire the lease; return whether this loader holds it."""
        turn = parts.lease.turn()
        if turn is not None:
            parts.loader.begin_turn(turn)
        caught_up_at = self._caught_up_at
        self._note_turn(is_active=turn is not None)
        if turn is None and parts.lease.is_yielding:
            self._caught_up_at = caught_up_at  # There may be no other loader.
        return turn is not None

    def _note_turn(self, *, is_active: bool) -> None:
        if is_active != self._is_active:
            log.info("loader_active" if is_active else "loader_waiting")
        self._is_active = is_active
        if not is_active:  # This loader's progress says nothing about the active one's.
            self._has_caught_up = self.is_catching_up = False
            self._caught_up_at = time.monotonic()
            self._backlog_bytes = 0
            self._metrics.backlog_bytes.set(0)

    def _follow_up(self, parts: LoadParts) -> None:
        self._followed_up_at = time.monotonic()
        if not self._pause_requested:
            parts.days.close_next_days(today_at(parts.clock.now_ms()))
        note_first_events(parts.ledger, parts.note_first_event)

    def _load_all(self, parts: LoadParts) -> None:
        loader = parts.loader
        while not self._stopping.is_set() and not self._pause_requested and self._has_turn(parts):
            began = time.monotonic()
            loaded = self._load_range(loader)
            self._metrics.records.inc(loaded)
            self.is_catching_up = bool(loaded) and not loader.has_reached_end
            if not self.is_catching_up:
                # A range is read while the previous one is loaded; an empty one has just been read.
                self._caught_up_at = self._range_began_at if loaded else began
                self._has_caught_up = True
            self._range_began_at = began
            if not loaded:
                return
            # Under steady load there may never be an empty range.
            if began - self._followed_up_at >= _FOLLOW_UP_EVERY_S:
                with self._watched():
                    self._follow_up(parts)
                self._measure(parts, time.monotonic() - began)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend loading and trimming during the block, so that warehouse, positions and log stay consistent."""
        with self._pause_lock:
            self._pause_requested = True  # Under load, a step would never finish unless interrupted.
            self._step_lock.acquire()
            self._pause_requested = False
        try:
            yield
        finally:
            self._step_lock.release()

    def load_pending(self) -> None:
        """Load everything that is in the log now, but not necessarily later records."""
        with self.paused():
            parts = self._opened()
            ends = ends_of(parts.ledger, parts.source)
            if not self._has_turn(parts) and self._others_have_loaded(parts, ends):
                return
            loader = parts.loader
            self._load_range(loader)  # This range may have been read before now.
            while self._load_range(loader) and not loader.has_reached_end:
                pass
            held_back = loader.held_back()
            while not loader.has_loaded(held_back) or not are_loaded(ends, parts.ledger, parts.source):
                self._refuse_if_stopping()
                time.sleep(_RETRY_S)
                self._load_range(loader)

    def _load_range(self, loader: Loader) -> int:
        with self._watched():
            return loader.load_next_range()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._work = next(self._works)
        try:
            yield
        finally:
            self._work = None

    def _refuse_if_stopping(self) -> None:
        if self._stopping.is_set():
            raise StoreUnavailableError("the service is stopping: try again later")

    def _others_have_loaded(self, parts: LoadParts, ends: Mapping[int, int]) -> bool:
        """Wait until another machine has loaded up to these ends; return False if this one has to load."""
        gives_up_at = time.monotonic() + OTHER_LOADER_S_MAX
        while not are_loaded(ends, parts.ledger, parts.source):
            self._refuse_if_stopping()
            if time.monotonic() > gives_up_at:
                raise StoreUnavailableError("another machine is loading and has not caught up in time: try again later")
            time.sleep(_OTHER_LOADER_EVERY_S)
            if self._has_turn(parts):
                return False
        return True

    def _opened(self) -> LoadParts:
        if self._parts is None:
            self._parts = self._open_parts()
        return self._parts

    def stop(self) -> None:
        """End the current step early and release the lease; unloaded records stay in the log."""
        self._stopping.set()

    def status(self) -> dict[str, int]:
        """Return the backlog fields of `/readyz`."""
        lag_ms = int((time.monotonic() - self._caught_up_at) * 1000)
        return {"backlog_bytes": self._backlog_bytes, "load_lag_ms": lag_ms}

    def close(self) -> None:
        if self._parts is not None:
            self._parts.close()

    def _measure(self, parts: LoadParts, took_s: float) -> None:
        with self._watched():
            self._measure_backlog(parts)
        self._metrics.repeats.set(parts.loader.repeat_count)
        self._metrics.seconds.set(took_s)
        self._metrics.lag_seconds.set(time.monotonic() - self._caught_up_at)
        self._metrics.dead_letters.set(parts.ledger.dead_letter_count())
        self._metrics.quarantined.set(parts.source.quarantined())
        self._metrics.lost.set(parts.loader.lost_messages)
        self._metrics.reach_s.set(parts.source.reach().seconds or 0)

    def _measure_backlog(self, parts: LoadParts) -> None:
        positions = parts.ledger.positions()
        waiting = parts.ledger.waiting_bytes(positions.get(MIXED_STREAM, 0))
        self._backlog_bytes = parts.source.backlog_bytes(positions) + waiting
        self._metrics.backlog_bytes.set(self._backlog_bytes)


def note_first_events(ledger: LoadLedger, note: Callable[[str, int], None]) -> None:
    """Report each project's first event, then acknowledge the report."""
    seen = ledger.first_seen()
    for project, at in seen.items():
        note(project, at)
    if seen:
        ledger.acknowledge_first_seen(seen)
