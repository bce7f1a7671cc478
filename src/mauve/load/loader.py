"""The loader: moves the next range of the log into the warehouse, each event exactly once.

The order of the steps ensures that: rows are durable in the warehouse before the ledger commits the position, and the
position is committed before the log is trimmed. After a failure the warehouse is asked which rows after the position
it already has; the records up to the last of them are finished before any others.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Final

import structlog

from mauve.core.clock import Clock
from mauve.core.times import DAY_MS
from mauve.core.window import today_at
from mauve.load.arrival_order import ArrivalOrder
from mauve.load.close_days import DayCloser
from mauve.load.rows import LogRange, Records, first_day_of, first_seen_of, range_from, repeats_among, usage_of
from mauve.stores.ingest_stats import REPEAT, IngestStats
from mauve.stores.ledger import DeadLetter, LoadLedger, LoadStep
from mauve.stores.log import MIXED_STREAM, LogReader, LogRecord
from mauve.stores.warehouse import EventRows, RowsRefusedError, WarehouseWriter, last_numbers

IDEMPOTENCY_WINDOW_MS: Final = 7 * DAY_MS
RANGE_BYTES_MAX: Final = 32 * 1024 * 1024

log = structlog.get_logger()


def one_thread() -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix="read-ahead")


class Loader:
    def __init__(
        self,
        source: LogReader,
        ledger: LoadLedger,
        warehouse: WarehouseWriter,
        clock: Clock,
        days: DayCloser,
        *,
        range_bytes_max: int = RANGE_BYTES_MAX,
        new_thread: Callable[[], Executor] = one_thread,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._warehouse = warehouse
        self._clock = clock
        self._days = days
        self._positions: dict[int, int] | None = None  # None: may differ from the warehouse
        self._committed: dict[int, int] = {}  # by the ledger so far, within a step
        self._reader = new_thread()
        self._arrivals = ArrivalOrder(self._streams, self._read_stream, clock, range_bytes_max)
        self._ahead: Future[LogRange] | None = None
        self.has_reached_end = False  # the last range was all that the log held when it was read
        self.repeat_count = 0  # events not counted by this loader because their id was a repeat

    def load_next_range(self) -> int:
        """Load the next records, up to a limit; return how many there were."""
        positions, self._positions = self._positions, None
        known: dict[int, bool] = {}
        if positions is None:
            positions, known = self._recover()
        log_range = self._half_stored_range(positions, known)
        if not log_range.records:
            log_range = self._next_range(positions)
        self.has_reached_end = log_range.is_last
        if log_range.records:
            after = positions | _last_of(log_range.records)
            self._committed = positions
            self._load_and_read_ahead(log_range, known, after)
            self._trim(after)
            positions = after
        self._positions = positions
        return len(log_range.records)

    def held_back(self) -> dict[int, int]:
        """Return the last record of each stream that was read but has to wait for other streams.

        It arrived after reading began, or the clock was set back by a few seconds.
        """
        return self._arrivals.waiting_numbers()

    def has_loaded(self, numbers: Mapping[int, int]) -> bool:
        positions = self._positions or {}
        return all(positions.get(stream, 0) >= number for stream, number in numbers.items())

    def close(self) -> None:
        self._reader.shutdown()

    def _recover(self) -> tuple[dict[int, int], dict[int, bool]]:
        """Return the committed positions, and the rows after them that are stored nevertheless."""
        self._ahead = None
        self._arrivals.reset()
        positions = self._ledger.positions()
        self._trim(positions)  # The last step may have ended before it trimmed.
        return positions, self._stored_after({stream: positions.get(stream, 0) for stream in self._streams()})

    def _stored_after(self, positions: dict[int, int]) -> dict[int, bool]:
        """Return the rows left by an unfinished step. Their ids must be known before any other row is judged."""
        known = self._warehouse.stored_after(positions)
        if any(known.values()):
            self._warehouse.recover_ids(positions)
        return known

    def _half_stored_range(self, positions: dict[int, int], known: dict[int, bool]) -> LogRange:
        """Return the range that an unfinished step has stored in part, and nothing else.

        Its rows were judged against one another: a later row must not be judged before all of them are known, nor an
        earlier one after them.
        """
        records = self._arrivals.take_unfinished(positions, last_numbers(known)) if known else []
        return range_from(records)

    def _next_range(self, positions: dict[int, int]) -> LogRange:
        """Return the range that was read ahead, or read one if that was empty."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.result().records:
            return ahead.result()
        return self._read(positions)

    def _read(self, positions: dict[int, int]) -> LogRange:
        records, is_last = self._arrivals.take(positions)
        return range_from(records, is_last=is_last)

    def _load_and_read_ahead(self, log_range: LogRange, known: dict[int, bool], positions: dict[int, int]) -> None:
        """Load a range while a thread reads the next: the warehouse works without holding the interpreter."""
        self._ahead = self._reader.submit(self._read, positions)
        try:
            self._load(log_range, known)
        finally:
            wait([self._ahead])  # The log is read and trimmed by one thread at a time.

    def _streams(self) -> list[int]:
        return [*self._source.streams(), MIXED_STREAM]

    def _read_stream(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        if stream == MIXED_STREAM:
            return self._ledger.read_events(after, bytes_max)
        return self._source.read(stream, after, bytes_max)

    def _load(self, log_range: LogRange, known: dict[int, bool]) -> None:
        """Load a range. If its rows are refused, halve it until the faulty record is alone."""
        stored = {seq: known[seq] for seq in log_range.rows.seq if seq in known} if known else {}
        try:
            repeats = self._store(log_range.rows, stored)
        except RowsRefusedError as error:
            records = log_range.records
            if len(records) == 1:
                self._finish(LogRange(records, unreadable=[(*records[0], str(error))]), set())
                return
            known = self._stored_after({stream: record.number - 1 for stream, record in reversed(records)})
            middle = len(records) // 2
            for half in (records[:middle], records[middle:]):
                self._load(range_from(half), known)
        else:
            self._finish(log_range, repeats)

    def _store(self, rows: EventRows, stored: dict[int, bool]) -> set[int]:
        if not rows:
            return set()
        same_ids = self._warehouse.stage(rows)
        repeats = repeats_among(rows, same_ids, stored, IDEMPOTENCY_WINDOW_MS)
        self._days.reopen_from(first_day_of(rows))
        self._warehouse.commit(repeats, stored.keys())
        return repeats

    def _finish(self, log_range: LogRange, repeats: set[int]) -> None:
        now = self._clock.now_ms()
        letters = [
            DeadLetter(stream, record.number, reason, record.payload, now)
            for stream, record, reason in log_range.unreadable
        ]
        for letter in letters:
            log.error("record_not_loaded", stream=letter.stream, number=letter.number, reason=letter.reason)
        positions = _last_of(log_range.records)
        step = LoadStep(
            positions=positions,
            positions_before={stream: self._committed.get(stream, 0) for stream in positions},
            events_by_org_and_period=usage_of(log_range, repeats),
            first_seen_by_project=first_seen_of(log_range.batches),
            dead_letters=letters,
            ingest_stats=_repeat_stats(log_range.rows, repeats, now) if repeats else None,
        )
        self._ledger.finish(step)
        self._committed = self._committed | positions
        self.repeat_count += len(repeats)

    def _trim(self, positions: dict[int, int]) -> None:
        for stream, number in positions.items():
            if stream == MIXED_STREAM:
                self._ledger.trim_events(number)
            else:
                self._source.trim(stream, number)


def _last_of(records: Records) -> dict[int, int]:
    """Return the number of the last record of each stream."""
    return {stream: record.number for stream, record in records}


def _repeat_stats(rows: EventRows, repeats: set[int], now_ms: int) -> IngestStats:
    """Count the repeats of each project, for its owner."""
    by_project = Counter(project for project, seq in zip(rows.project, rows.seq, strict=True) if seq in repeats)
    counts = {(project, REPEAT): count for project, count in by_project.items()}
    return IngestStats(today_at(now_ms).isoformat(), now_ms, counts)
