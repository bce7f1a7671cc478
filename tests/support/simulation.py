"""Log, loader and checkpoint on a simulated machine: one schedule of events, drawn from one seed.

A schedule is a few lives of two real writers and a real loader, on a simulated disk and simulated stores. A life ends
with a power cut or a kill at any step. At the end the machine works again, everything is loaded, and what is stored is
compared with what was sent. To run one again: `PYTHONPATH=tests python -m support.simulation SEED`.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ParamSpec, TypeVar, cast

import uvloop
from structlog.testing import capture_logs

from mauve.core.batch import packed_header
from mauve.load.loader import IDEMPOTENCY_WINDOW_MS, MISSING_TRIES_MAX, DayCloser, Loader
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.log import LogFailedError, LogFullError, LogReader
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse
from support.clocks import ManualClock
from support.simulated_disk import AMPLE, MachineDownError, SimulatedDisk, place_of
from support.simulated_stores import (
    POISON,
    Content,
    Faults,
    SimulatedClosedDays,
    SimulatedLedger,
    SimulatedWarehouse,
    StoredRow,
    day_of,
)

P = ParamSpec("P")
T = TypeVar("T")
SEGMENT_BYTES = 1536
ROOT = place_of("/log")
HOUR_MS = 3_600_000
STEPS_MS = (0, 1, HOUR_MS, -2 * HOUR_MS, 72 * HOUR_MS, IDEMPOTENCY_WINDOW_MS - 1, IDEMPOTENCY_WINDOW_MS)
STORE_ERRORS = (WarehouseUnavailableError, StoreUnavailableError, OSError)


class TickingClock(ManualClock):
    """Constant to the millisecond; every reading differs by a microsecond."""

    ticks = 0
    was_set_back = False

    def now_us(self) -> int:
        self.ticks += 1
        return super().now_us() + self.ticks

    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        self.was_set_back |= milliseconds < 0


class InlineExecutor(Executor):
    """Runs each task at once, in the caller's thread."""

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - it is raised by the result, as with a thread
            future.set_exception(error)
        return future


class Violation(AssertionError):  # noqa: N818 - a finding, not an error
    pass


@dataclass(slots=True)
class Sent:
    """A record as it was sent, and the sender's answer."""

    stream: int
    payload: bytes
    rows: list[Content]
    is_loadable: bool
    outcome: str = "unknown"
    issued: int = 0
    was_overtaken: bool = False  # by one that arrived while it was not yet durable: either may count


@dataclass
class Schedule:
    UNREADABLE = UNLOADABLE = 0.01  # how many records

    seed: int
    disk_class: type[SimulatedDisk] = SimulatedDisk
    mark: bytes | None = None
    sent: list[Sent] = field(default_factory=list)
    writers: dict[int, SegmentLogWriter] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = self.disk_class(self.rng)
        self.faults = Faults(self.rng, self.disk.call)
        self.warehouse = SimulatedWarehouse(self.faults)
        self.ledger = SimulatedLedger(self.faults)
        self.closed = SimulatedClosedDays(self.faults)
        self.clock = TickingClock()
        self.is_loading = False
        self.begin_loader()

    def begin_loader(self) -> None:
        self.warehouse.forget_staged()
        self.reader: LogReader = SegmentLogReader(ROOT, disk=self.disk, monotonic=lambda: self.seconds)
        self.days = DayCloser(cast("ClosedDays", self.closed), cast("ClickHouseWarehouse", self.warehouse))
        self.loader = Loader(
            self.reader,
            cast("LoadLedger", self.ledger),
            cast("ClickHouseWarehouse", self.warehouse),
            self.clock,
            self.days,
            range_bytes_max=self.rng.choice((1, 400, AMPLE, AMPLE)),
            new_thread=InlineExecutor,
        )

    def writer(self, stream: int) -> SegmentLogWriter:
        writer = self.writers.get(stream)
        if writer is None or writer.has_failed:  # which ends its process; the supervisor starts another
            writer = self.writers[stream] = SegmentLogWriter(
                ROOT,
                stream,
                segment_bytes=SEGMENT_BYTES,
                budget_bytes=self.rng.choice([2, 4, 50]) * SEGMENT_BYTES,
                disk=self.disk,
                new_thread=InlineExecutor,
                monotonic=lambda: self.seconds,
                new_mark=lambda: self.mark or self.rng.randbytes(8),
            )
        return writer

    async def run(self) -> None:
        self.ledger.keeps_intents = self.rng.random() < 0.5
        for _ in range(self.rng.choice((1, 1, 2, 2, 2))):
            self.draw_faults()
            with suppress(MachineDownError):
                await self.live()
            self.disk.restart(has_lost_power=self.rng.random() < 0.7)
            self.writers.clear()
            self.begin_loader()
        self.faults.failure = 0
        self.ledger.keeps_intents = True
        await self.finish()
        self.check()

    def draw_faults(self) -> None:
        rng, disk = self.rng, self.disk
        disk.calls_left = rng.choice((-1, rng.randint(0, 80), rng.randint(40, 200)))
        disk.sync_failure = rng.choice((0, 0, 0.1))
        disk.short_write = rng.choice((0, 0, 0.3))
        disk.room_bytes = rng.choice((AMPLE, AMPLE, rng.randint(2, 8) * SEGMENT_BYTES))
        disk.before_sync = lambda: self.load() if rng.random() < 0.2 else None
        self.faults.failure = rng.choice((0, 0.03))

    async def live(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            luck = self.rng.random()
            if luck < 0.55:
                await self.append_group(self.rng.randint(0, 1))
            elif luck < 0.65:
                self.record_beside_a_payment()
            else:
                self.load()
            self.seconds += self.rng.choice((0, 0.05, 0.2, 2))
            if self.rng.random() < 0.3:
                self.clock.advance(self.rng.choice(STEPS_MS))
            if self.disk.is_down:
                return

    async def append_group(self, stream: int) -> None:
        writer = self.writer(stream)
        group = [self.draw(stream) for _ in range(self.rng.choice((1, 2, 3)))]
        if self.rng.random() < 0.1:
            self.overtake(group)
        for each, future in [(each, writer.append([each.payload[:9], each.payload[9:]])) for each in group]:
            try:
                await future
                each.outcome = "acknowledged"
            except LogFullError:
                each.outcome = "refused"
            except LogFailedError:
                pass

    def overtake(self, group: list[Sent]) -> None:
        """Let another request arrive and be loaded while this group has arrived and is being written to the log."""
        for each in group:
            each.was_overtaken = True
        self.record_beside_a_payment()
        self.load()

    def record_beside_a_payment(self) -> None:
        each = self.draw(255)
        with suppress(StoreUnavailableError):
            self.ledger.record(each.payload)
            each.outcome = "acknowledged"

    def draw(self, stream: int) -> Sent:
        """Make a record of one to three events, rarely one that cannot be loaded."""
        rng, now_ms = self.rng, self.clock.now_ms()
        luck, filling = rng.random(), "x" * rng.choice((0, 0, 20, 250, 700))
        first = POISON if luck < self.UNLOADABLE else rng.choice("ab")
        rows = []
        for place in range(rng.choice((1, 1, 2, 3))):
            id_ = rng.choice(("", "1", "2", "3"))
            props = f'{{"n":{len(self.sent)},"place":{place},"f":"{"" if place else filling}"}}'
            name = rng.choice("ab") if place else first
            rows.append(("proj", name, now_ms, f"u{len(self.sent)}", id_, props))
        items = ",".join(
            f'{{"name":"{name}","user":"{user}","id":"{id_}","props":{props}}}' for _, name, _, user, id_, props in rows
        )
        header = packed_header("proj", "org", now_ms, self.clock.now_us(), len(rows))
        is_readable = luck < 1 - self.UNREADABLE
        payload = header + f"[{items}]".encode() if is_readable else b"\xff" + header + items.encode()
        self.sent.append(Sent(stream, payload, rows, is_readable and first != POISON, issued=len(self.sent)))
        return self.sent[-1]

    def load(self) -> None:
        """Make one step, perhaps in the middle of a writer's sync: they are different processes."""
        if self.is_loading:
            return
        self.is_loading = True
        try:
            if not self.loader.load_next_range():
                self.days.close_next_days(day_of(self.clock.now_ms()))
        except MachineDownError:
            pass
        except STORE_ERRORS:
            if self.rng.random() < 0.5:
                self.begin_loader()
        finally:
            self.is_loading = False

    async def finish(self) -> None:
        """On a working machine: write one more group, then load everything."""
        await self.append_group(self.rng.randint(0, 1))
        for _ in range(2 * len(self.sent) + 4 + MISSING_TRIES_MAX):
            self.seconds += 2
            with suppress(StoreUnavailableError):  # A disk that lied has lost intended records.
                if not self.loader.load_next_range():
                    break
        else:
            raise Violation("loading does not come to an end")

    def check(self) -> None:
        self.check_that_each_is_stored_once()
        self.check_what_counts()
        self.check_that_the_first_counts()
        self.check_dead_letters()
        self.check_order()
        if self.reader.quarantined() > len(self.sent):
            raise Violation("more was reported damaged than was sent")

    def check_that_each_is_stored_once(self) -> None:
        stored = Counter(row.content for row in self.warehouse.events)
        if stored and max(stored.values()) > 1:
            raise Violation("an event is stored twice")
        for each in self.sent:
            found = sum(stored.pop(row, 0) for row in each.rows)
            if each.outcome == "acknowledged" and each.is_loadable and found != len(each.rows):
                raise Violation(f"an acknowledged record is lost: {each}")
            if each.outcome == "refused" and found:
                raise Violation(f"a refused record is stored: {each}")
            if found not in {0, len(each.rows)} and not self.may_lose(each):
                raise Violation(f"half a record is stored: {each}")
        if stored:
            raise Violation(f"an event was invented or changed: {stored}")

    def check_what_counts(self) -> None:
        """Events of one id that count are seven days apart, and each that does not has an earlier one that does."""
        counted = [row for row in self.warehouse.events if row.counts]
        unbilled_max = sum(len(each.rows) for each in self.sent if self.may_lose(each))
        if not 0 <= len(counted) - self.ledger.events_counted <= unbilled_max:
            raise Violation(f"{self.ledger.events_counted} were billed, {len(counted)} are counted")
        lost = {(day_of(row[2]), row[3]) for each in self.sent if self.may_lose(each) for row in each.rows}
        users = {(row.day, row.content[3]) for row in counted}
        if self.warehouse.users | lost != users | lost:
            raise Violation("a user is missing from the sketches, or too many")
        by_day = Counter(day for day, _ in users)
        if not lost and any(by_day[day] != number for day, number in self.closed.users.items()):
            raise Violation("a closed day has another number than its users")
        by_id: dict[str, list[StoredRow]] = {}
        for row in self.warehouse.events:
            if row.id:
                by_id.setdefault(row.id, []).append(row)
            elif not row.counts:
                raise Violation("an event without an id does not count")
        if not lost:
            for rows in by_id.values():
                check_one_id(rows, self.warehouse.cut_short)

    def check_that_the_first_counts(self) -> None:
        """Of events with one id the first arrival counts, whatever its route, unless the clock was set back."""
        if self.clock.was_set_back:
            return
        counts = {row.content: row.counts for row in self.warehouse.events}
        # An event without an answer may have been judged nevertheless, and lost since.
        doubted = [each for each in self.sent if each.outcome == "unknown" or each.was_overtaken]
        doubtful = {row[4] for each in doubted for row in each.rows}
        counted_at: dict[str, int] = {}
        for row in (row for each in self.sent for row in each.rows if row in counts and row[4] not in doubtful | {""}):
            _, _, received_at, _, id_, _ = row
            is_first = received_at - counted_at.get(id_, -IDEMPOTENCY_WINDOW_MS) >= IDEMPOTENCY_WINDOW_MS
            if is_first != counts[row]:
                raise Violation(f"not the first that arrived counts: {row}")
            if is_first:
                counted_at[id_] = received_at

    def may_lose(self, each: Sent) -> bool:
        """Return whether a record may have been read, loaded in part, and lost because the disk lied about it.

        After a failed sync its pages count as clean, which cannot be detected. It was never acknowledged.
        """
        return each.outcome == "unknown" and self.disk.has_lied

    def check_dead_letters(self) -> None:
        dead = Counter(self.ledger.dead_letters)
        for each in self.sent:
            found = dead.pop(each.payload, 0)
            if found > 1 or (found and each.is_loadable):
                raise Violation(f"a dead letter too many: {each}")
            if not found and not each.is_loadable and each.outcome == "acknowledged":
                raise Violation(f"a record that cannot be loaded is not among the dead letters: {each}")
        if dead:
            raise Violation("a dead letter that was never sent")

    def check_order(self) -> None:
        """Within each stream, what was sent later is stored later."""
        issued = {row: (each.stream, each.issued, place) for each in self.sent for place, row in enumerate(each.rows)}
        in_order = [issued[row.content] for row in sorted(self.warehouse.events, key=lambda row: row.seq)]
        if in_order != sorted(in_order):
            raise Violation("events are out of order")


def check_one_id(rows: list[StoredRow], cut_short: set[int]) -> None:
    moments = sorted(row.received_at for row in rows if row.counts)
    if any(later - earlier < IDEMPOTENCY_WINDOW_MS for earlier, later in pairwise(moments)):
        raise Violation("an id counts twice within its window")
    counted = [row for row in rows if row.counts]
    for row in rows:
        was_cut_short = row.stored in cut_short  # What it was judged by may be stored later than others of that id.
        if not row.counts and not any(
            row.received_at - other.received_at < IDEMPOTENCY_WINDOW_MS
            and (other.first_staged <= row.stored or was_cut_short)
            for other in counted
        ):
            raise Violation(f"an event does not count, and none that it repeats does: {row.content}")


def first_violation(
    seeds: range,
    disk_class: type[SimulatedDisk] = SimulatedDisk,
    mark: bytes | None = None,
    schedule_class: type[Schedule] = Schedule,
) -> tuple[int, str] | None:
    """Run schedules until one fails; return its seed and the violation."""

    async def run() -> tuple[int, str] | None:
        for seed in seeds:
            try:
                await schedule_class(seed, disk_class, mark).run()
            except Exception as error:  # noqa: BLE001 - any exception of the log or the loader is a finding too
                return seed, repr(error)
        return None

    with capture_logs():
        return uvloop.run(run())


if __name__ == "__main__":
    uvloop.run(Schedule(int(sys.argv[1])).run())
    print(f"seed {sys.argv[1]} holds")  # noqa: T201 - a program for people
