"""The loader: moves the next range of the log into the warehouse, each event exactly once.

The order of the steps ensures that: the ledger holds the intended range before the warehouse may store it, rows are
durable in the warehouse before the ledger commits the position, and the position is committed before the log is
trimmed. After a failure, exactly the intended range is loaded again before any other record, minus the rows that the
warehouse already has. The ledger refuses intents and positions of a loader that has lost its lease, and a server stores
a range only once, even if two loaders commit it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from datetime import date, timedelta
from typing import Final, NamedTuple

import structlog

from mauve.core.clock import Clock
from mauve.core.times import DAY_MS
from mauve.core.window import DAY, Window, sunday_of, today_at
from mauve.load.arrival_order import STEP_BYTES_MAX, ArrivalOrder, in_order
from mauve.load.rows import (
    LogRange,
    Records,
    Unreadable,
    first_day_of,
    first_seen_of,
    range_from,
    repeats_among,
    suppressed_among,
    usage_of,
)
from mauve.stores import StoreUnavailableError
from mauve.stores.ingest_stats import REPEAT, SUPPRESSED, IngestStats
from mauve.stores.ledger import DeadLetter, Intent, LoadStep, Turn
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log import MIXED_STREAM, LogReader, LogRecord, Lost
from mauve.stores.warehouse import RowsRefusedError, last_numbers
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse

IDEMPOTENCY_WINDOW_MS: Final = 7 * DAY_MS
RANGE_BYTES_MAX: Final = STEP_BYTES_MAX
MISSING_TRIES_MAX: Final = 20
_LOST: Final = "the stream was purged, or the restored backup is older than the stream: loading continues after them"
# Events are dated at most seven days back, plus a day because events received just before midnight load after it.
_OPEN: Final = timedelta(days=9)

log = structlog.get_logger()


class DayCloser:
    """Counts a day's users once, when no more events can be dated to it. Used by the loader's thread only."""

    def __init__(self, closed: ClosedDays, warehouse: ClickHouseWarehouse) -> None:
        self._closed = closed
        self._warehouse = warehouse

    def reopen_from(self, first: date) -> None:
        """Reopen this day and all later ones before rows are loaded into them.

        Needed when a clock was wrong for days, or when history is generated.
        """
        through = self._closed.through()
        if through is not None and first <= through:
            log.warning("days_reopened", first=str(first), closed_through=str(through))
            self._closed.reopen(first)

    def close_next_days(self, today: date) -> bool:
        """Close the days of one week that are due; return whether any were. Load all accepted events first."""
        limit = today - _OPEN
        first = self._first_open(limit)
        last = min(sunday_of(first), limit)
        if last < first:
            return False
        if last == sunday_of(last):
            self._warehouse.merge_week(Window(last - 6 * DAY, last))
        self._closed.close(last, self._warehouse.users_of_days(Window(first, last)))
        return True

    def _first_open(self, limit: date) -> date:
        through = self._closed.through()
        if through is not None:
            return through + DAY
        first = self._warehouse.first_day()
        return limit if first is None else first


def one_thread() -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix="read-ahead")


class Unfinished(NamedTuple):
    """Possible leftovers of an unfinished step."""

    intent: Intent | None = None
    stored: Mapping[int, bool] = {}  # rows after the positions: seq → whether the row counts


class Loader:
    def __init__(
        self,
        source: LogReader,
        ledger: LoadLedger,
        warehouse: ClickHouseWarehouse,
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
        self._turn: Turn | None = None  # None: this is the only loader
        self._positions: dict[int, int] | None = None  # None: may differ from the warehouse
        self._committed: dict[int, int] = {}  # by the ledger so far, in this step
        self._knows_all_ids = True  # False: another loader may have counted ids
        self._lost_streams: frozenset[int] = frozenset()  # at the last search for rows of unfinished steps
        self._missing_tries = 0  # attempts to read an intended range that has missing records
        self._reader = new_thread()
        self._arrivals = ArrivalOrder(self._streams, self._read_stream, clock, range_bytes_max)
        self._ahead: Future[LogRange] | None = None
        self.has_reached_end = False  # the last range ended where the log did
        self.lost_messages = 0  # deleted from the log before they were loaded
        self.repeat_count = 0  # events not counted by this loader because their id was a repeat

    def begin_turn(self, turn: Turn) -> None:
        """Start loading under this turn. Anything cached before it may be outdated."""
        if turn == self._turn:
            return
        if self._turn is None or turn.epoch != self._turn.epoch + 1:
            self._knows_all_ids = False
        self._turn, self._positions = turn, None

    def load_next_range(self) -> int:
        positions, self._positions = self._positions, None
        unfinished = Unfinished()
        if positions is None:
            positions, unfinished = self._recover()
        log_range = self.unfinished_range(positions, unfinished)
        if not log_range.records:
            log_range = self._next_range(positions)
            if self._pass_over_lost(positions):
                return self.load_next_range()
        if self._lost_streams - self._source.lost_streams():
            # Rows of a restored stream may already be stored: look for them first.
            return self.load_next_range()
        self.has_reached_end = log_range.is_last
        if log_range.records:
            after = {**positions, **_intent_of(log_range, positions).positions}
            self._committed = positions
            self.load_and_read_ahead(log_range, unfinished.stored, after)
            self.trim(after)
            positions = after
        if log_range.is_last:
            self._warehouse.expire_ids(self._clock.now_ms())
        if log_range.intent is None:  # Otherwise there may be stored rows after that range.
            self._positions = positions
        return len(log_range.records)

    def held_back(self) -> dict[int, int]:
        """Return the last record of each stream that was read but must wait for other streams.

        Such records arrived after reading began, or the clock was set back by a few seconds.
        """
        return self._arrivals.waiting_numbers()

    def has_loaded(self, numbers: Mapping[int, int]) -> bool:
        positions = self._positions or {}
        return all(positions.get(stream, 0) >= number for stream, number in numbers.items())

    def close(self) -> None:
        self._reader.shutdown()

    def _recover(self) -> tuple[dict[int, int], Unfinished]:
        """Return the committed positions and possible leftovers of a step that began there."""
        self._ahead = None
        self._arrivals.reset()
        positions, intent = self._ledger.positions(), self._ledger.intent()
        self.trim(positions)  # The last step may have ended before it trimmed.
        # Epochs are not enough: a failover may have lost this loader's last turn and reused its epoch for another's.
        if not self._knows_all_ids or positions != self._committed:
            self._warehouse.forget_ids()
            self._knows_all_ids, self._committed = True, positions
        self._warehouse.ping()  # While it is down, do not read the log at every attempt.
        received_from = self._arrivals.received_from(positions)
        self._lost_streams = self._source.lost_streams()
        after = {stream: positions.get(stream, 0) for stream in self._streams()}
        return positions, Unfinished(intent, {} if received_from is None else self._stored_after(after, received_from))

    def _stored_after(self, positions: Mapping[int, int], received_from: int) -> dict[int, bool]:
        """Return the rows left by an unfinished step. Other rows must be deduplicated against their ids."""
        known = self._warehouse.stored_after(positions, received_from)
        if any(known.values()):
            self._warehouse.recover_ids(positions, received_from)
        return known

    def unfinished_range(self, positions: dict[int, int], unfinished: Unfinished) -> LogRange:
        """Return exactly the range that an unfinished step may have partly stored.

        Its rows were deduplicated against one another: load all of them before any later row, and no earlier row
        after them.
        """
        intent, stored = unfinished
        if intent is not None:
            found, records = self._intended_records(intent)
            if records:
                log_range = range_from(records)
                log_range.intent = found
                log_range.unreadable += _reasons(self._lost_of(found))
                return log_range
        return range_from(self._arrivals.take_unfinished(positions, last_numbers(stored)) if stored else [])

    def _intended_records(self, intent: Intent) -> tuple[Intent, Records]:
        """Return an intended range and its records. Fail a few times if some are missing: a replica of the log may lag.

        After that, assume that they are lost, so that they do not block the others. A stream that is lost entirely is
        left out of the range; its position stays, in case it is restored.
        """
        records = self._arrivals.take_range(intent.before, intent.positions)
        lost_streams = self._source.lost_streams()
        if intent.positions.items() <= _last_of(records).items():
            self._missing_tries = 0
            return intent, records
        self._missing_tries += 1
        if self._missing_tries <= MISSING_TRIES_MAX and not self._lost_of(intent):
            raise StoreUnavailableError(f"the log lacks records of the range {intent.name}")
        log.error("intended_records_lost", range=intent.name)
        self._missing_tries = 0
        self._stored_after(intent.before, 0)  # Rows of lost records may be stored, and their repeats must not count.
        return intent.without(lost_streams), [each for each in records if each[0] not in lost_streams]

    def _lost_of(self, intent: Intent) -> dict[int, Lost]:
        """Return the streams that have lost records of an intended range, and the minimum number lost."""
        lost = self._source.lost_after(intent.before)
        return {stream: each for stream, each in lost.items() if stream in intent.before}

    def _pass_over_lost(self, positions: Mapping[int, int]) -> bool:
        """Skip records that were deleted before they were loaded, so that they do not block new ones.

        The ledger records the loss, and refuses if the positions are outdated.
        """
        lost = self._source.lost_after(positions)
        if not lost:
            return False
        before = {stream: positions.get(stream, 0) for stream in lost}
        after = {stream: each.through for stream, each in lost.items()}
        letters = [_letter(*each, self._clock.now_ms()) for each in _reasons(lost)]
        self._ledger.finish(LoadStep(after, dead_letters=letters, positions_before=before, turn=self._turn))
        for stream, each in lost.items():
            self.lost_messages += each.messages
            log.error("log_records_lost", stream=stream, messages=each.messages, through=each.through, advice=_LOST)
        return True

    def _next_range(self, positions: dict[int, int]) -> LogRange:
        """Return the range that was read ahead, or read one if it was empty."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.result().records:
            return ahead.result()
        return self._read(positions)

    def _read(self, positions: dict[int, int]) -> LogRange:
        records, is_last = self._arrivals.take(positions)
        return range_from(records, is_last=is_last)

    def load_and_read_ahead(self, log_range: LogRange, known: Mapping[int, bool], positions: dict[int, int]) -> None:
        """Load a range while a thread reads the next one: the warehouse releases the GIL."""
        self._ahead = self._reader.submit(self._read, positions)
        try:
            self.load_range(log_range, known)
        finally:
            wait([self._ahead])  # The log is read and trimmed by one thread at a time.

    def _streams(self) -> list[int]:
        return [*self._source.streams(), MIXED_STREAM]

    def _read_stream(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        if stream == MIXED_STREAM:
            return self._ledger.read_events(after, bytes_max)
        return self._source.read(stream, after, bytes_max)

    def load_range(self, log_range: LogRange, known: Mapping[int, bool]) -> None:
        """Load a range. If its rows are refused, halve it until the faulty record is isolated."""
        try:
            repeats = self.store_range(log_range, known)
        except RowsRefusedError as error:
            records = log_range.records
            if len(records) == 1:
                unreadable = [(*records[0], str(error))]
                self.finish_range(LogRange(records, unreadable=unreadable, intent=log_range.intent), set())
                return
            first = {stream: record.number - 1 for stream, record in reversed(records)}
            known = self._stored_after(first, min(log_range.rows.received_at))
            middle = len(records) // 2
            for half in (records[:middle], records[middle:]):
                self.load_range(range_from(in_order(half)), known)
        else:
            self.finish_range(log_range, repeats)

    def store_range(self, log_range: LogRange, known: Mapping[int, bool]) -> set[int]:
        rows, intent = log_range.rows, _intent_of(log_range, self._committed)
        if not rows:
            return set()
        same_ids = self._warehouse.stage(rows)
        if log_range.intent is not None:
            # An earlier commit of this range may have succeeded late, and staging may have found the ids of its rows.
            known = self._stored_after(intent.before, min(rows.received_at))
        stored = {seq: known[seq] for seq in rows.seq if seq in known} if known else {}
        repeats = repeats_among(rows, same_ids, stored, IDEMPOTENCY_WINDOW_MS)
        log_range.suppressed = suppressed_among(rows, same_ids, repeats, IDEMPOTENCY_WINDOW_MS)
        self._days.reopen_from(first_day_of(rows))
        self._ledger.intend(intent, self._turn)
        self._warehouse.commit(repeats, stored.keys(), intent.name)
        return repeats

    def finish_range(self, log_range: LogRange, repeats: set[int]) -> None:
        now = self._clock.now_ms()
        letters = [_letter(*each, now) for each in log_range.unreadable]
        for letter in letters:
            log.error("record_not_loaded", stream=letter.stream, number=letter.number, reason=letter.reason)
        intent = _intent_of(log_range, self._committed)
        step = LoadStep(
            positions=intent.positions,
            positions_before=intent.before,
            events_by_org_and_period=usage_of(log_range, repeats),
            first_seen_by_project=first_seen_of(log_range.batches),
            dead_letters=letters,
            ingest_stats=_repeat_stats(log_range, repeats, now) if repeats else None,
            turn=self._turn,
        )
        self._ledger.finish(step)
        self._committed = {**self._committed, **intent.positions}
        self.repeat_count += len(repeats)

    def trim(self, positions: dict[int, int]) -> None:
        for stream, number in positions.items():
            if stream == MIXED_STREAM:
                self._ledger.trim_events(number)
            else:
                self._source.trim(stream, number)


def _intent_of(log_range: LogRange, positions: Mapping[int, int]) -> Intent:
    """Return the range from the positions to the last record of each stream, or the intent that it repeats."""
    if log_range.intent is not None:
        return log_range.intent
    last = _last_of(log_range.records)
    return Intent({stream: positions.get(stream, 0) for stream in last}, last)


def _reasons(lost: Mapping[int, Lost]) -> list[Unreadable]:
    return [
        (
            stream,
            LogRecord(each.through, b""),
            f"messages deleted before loading, up to this one: {each.messages}",
        )
        for stream, each in lost.items()
    ]


def _letter(stream: int, record: LogRecord, reason: str, at: int) -> DeadLetter:
    return DeadLetter(stream, record.number, reason, record.payload, at)


def _last_of(records: Records) -> dict[int, int]:
    return {stream: record.number for stream, record in records}


def _repeat_stats(log_range: LogRange, repeats: set[int], now_ms: int) -> IngestStats:
    rows = log_range.rows
    by_project = Counter(project for project, seq in zip(rows.project, rows.seq, strict=True) if seq in repeats)
    counts = {(project, REPEAT): count for project, count in by_project.items()}
    counts |= {(project, SUPPRESSED): count for project, count in log_range.suppressed.items()}
    return IngestStats(today_at(now_ms).isoformat(), now_ms, counts)
