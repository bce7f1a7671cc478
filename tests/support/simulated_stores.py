"""A ledger and a warehouse in memory, as durable as the real ones, that may crash or fail before and after each step.

The warehouse stores a commit as the engine does: the events part by part, then the ids, then the users. The engine's
parts are months; here they are names, so that a commit is interrupted far more often.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date
from functools import cache

from mauve.core.events import Activity
from mauve.core.window import DAY, Window, today_at
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Intent, LeaseLostError, LoadStep, StepOutdatedError, Turn
from mauve.stores.ledger.closed_days import DayUsers
from mauve.stores.log import LogRecord
from mauve.stores.warehouse import EventRows, RowsRefusedError, SameId, Texts, WarehouseUnavailableError, first_seq

POISON = "poison"
Content = tuple[str, str, int, str, str, str]
"""(project, name, received_at, user, id, props)"""
day_of = cache(today_at)  # few values, called often


class Faults:
    """What may happen before and after a step: the machine goes down, or the store fails this once."""

    def __init__(self, rng: random.Random, call: Callable[[], None]) -> None:
        self.rng = rng
        self.call = call
        self.failure = 0.0

    def pass_by(self, error: type[Exception]) -> None:
        self.call()
        if self.draws_a_failure():
            raise error("this once")

    def draws_a_failure(self) -> bool:
        return bool(self.failure) and self.rng.random() < self.failure


class StoredRow:
    """A row with everything known about how it was stored."""

    __slots__ = ("content", "counts", "first_staged", "seq", "stored")

    def __init__(self, content: Content, seq: int, first_staged: int) -> None:
        self.content, self.seq, self.first_staged = content, seq, first_staged
        self.counts = False
        self.stored = 0  # the number of the commit

    @property
    def id(self) -> str:
        return self.content[4]

    @property
    def received_at(self) -> int:
        return self.content[2]

    @property
    def day(self) -> date:
        return day_of(self.received_at)  # Without a claimed time, it occurred when it was received.


class SimulatedWarehouse:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.events: list[StoredRow] = []
        self.seen: dict[str, set[int]] = {}  # id → when it was counted
        self.users: set[tuple[date, str]] = set()
        self._staged: list[StoredRow] = []
        self._stages = 0
        self.cut_short: set[int] = set()  # commits that were interrupted
        self._first_staged: dict[int, int] = {}

    def forget_staged(self) -> None:
        """End with the process: staged rows were in its memory."""
        self._staged = []

    def stage(self, rows: EventRows) -> list[SameId]:
        self._faults.pass_by(WarehouseUnavailableError)
        self._stages += 1
        contents = list(contents_of(rows))
        if any(content[1] == POISON for content in contents):
            raise RowsRefusedError("poison")
        self._staged = [
            StoredRow(content, seq, self._first_staged.setdefault(seq, self._stages))
            for content, seq in zip(contents, rows.seq, strict=True)
        ]
        places: dict[str, list[int]] = {}
        for place, row in enumerate(self._staged):
            places.setdefault(row.id, []).append(place)
        return [SameId(of_id, sorted(self.seen.get(id_, ()))) for id_, of_id in places.items() if id_]

    def commit(self, repeats: Collection[int], stored: Collection[int], range_name: str = "") -> None:
        for row in self._staged:
            row.counts = row.seq not in repeats
            row.stored = self._stages
        self.cut_short.add(self._stages)
        for name in sorted({row.content[1] for row in self._staged}):
            self._faults.pass_by(WarehouseUnavailableError)
            self.events += [row for row in self._staged if row.content[1] == name and row.seq not in stored]
        self._faults.pass_by(WarehouseUnavailableError)
        self.add_ids([row for row in self._staged if row.counts and row.id and row.seq not in stored])
        self._faults.pass_by(WarehouseUnavailableError)
        self.users |= {(row.day, row.content[3]) for row in self._staged if row.counts}
        self.cut_short.remove(self._stages)
        self._faults.pass_by(WarehouseUnavailableError)

    def stored_after(self, positions: Mapping[int, int], received_from_ms: int = 0) -> dict[int, bool]:
        self._faults.pass_by(WarehouseUnavailableError)
        ranges = [(first_seq(stream, number + 1), first_seq(stream + 1, 0)) for stream, number in positions.items()]
        return {
            row.seq: row.counts
            for row in self.events
            if row.received_at >= received_from_ms and any(low <= row.seq < high for low, high in ranges)
        }

    def recover_ids(self, positions: Mapping[int, int], received_from_ms: int = 0) -> None:
        known = self.stored_after(positions, received_from_ms)
        self.add_ids([row for row in self.events if row.counts and row.id and row.seq in known])
        self._faults.pass_by(WarehouseUnavailableError)

    def forget_ids(self) -> None:
        """It keeps no copy of them."""

    def expire_ids(self, loaded_through_ms: int) -> None:
        """A simulation takes less than a day."""

    def add_ids(self, rows: list[StoredRow]) -> None:
        for row in rows:
            self.seen.setdefault(row.id, set()).add(row.received_at)

    def first_day(self) -> date | None:
        self._faults.pass_by(WarehouseUnavailableError)
        return min((day for day, _ in self.users), default=None)

    def users_of_days(self, window: Window) -> list[DayUsers]:
        self._faults.pass_by(WarehouseUnavailableError)
        counts = Counter(day for day, _ in self.users if window.first <= day <= window.last)
        return [DayUsers("proj", Activity.ACTIVE, day.isoformat(), users) for day, users in counts.items()]

    def merge_week(self, week: Window) -> None:
        self._faults.pass_by(WarehouseUnavailableError)

    def ping(self) -> None:
        self._faults.pass_by(WarehouseUnavailableError)


class SimulatedClosedDays:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.last: date | None = None
        self.users: dict[date, int] = {}

    def through(self) -> date | None:
        self._faults.pass_by(StoreUnavailableError)
        return self.last

    def close(self, through: date, users: Iterable[DayUsers]) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self.users |= {date.fromisoformat(each.day): each.users for each in users}
        self.last = through
        self._faults.pass_by(StoreUnavailableError)

    def reopen(self, first: date) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self.users = {day: users for day, users in self.users.items() if day < first}
        self.last = first - DAY
        self._faults.pass_by(StoreUnavailableError)


class SimulatedLedger:
    """The loader's side, and the outbox of events sent with payments."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.turn = Turn("", 0)
        self.keeps_intents = True  # An earlier release did not.
        self._intent: Intent | None = None
        self._positions: dict[int, int] = {}
        self._outbox: list[LogRecord] = []
        self._last_number = 0
        self._usage: Counter[tuple[str, str]] = Counter()  # by organization and period
        self._first_seen: dict[str, int] = {}
        self.dead_letters: list[bytes] = []

    @property
    def events_counted(self) -> int:
        return self._usage.total()

    def record(self, payload: bytes) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self._last_number += 1
        self._outbox.append(LogRecord(self._last_number, payload))
        self._faults.pass_by(StoreUnavailableError)

    def positions(self) -> dict[int, int]:
        self._faults.pass_by(StoreUnavailableError)
        return dict(self._positions)

    def intend(self, intent: Intent, turn: Turn | None) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self.check_turn(turn)
        self.check_positions(intent.before)
        self._intent = intent if self.keeps_intents else None
        self._faults.pass_by(StoreUnavailableError)

    def intent(self) -> Intent | None:
        self._faults.pass_by(StoreUnavailableError)
        return self._intent

    def check_turn(self, turn: Turn | None) -> None:
        if turn is not None and turn != self.turn:
            raise LeaseLostError("another turn has begun")

    def finish(self, step: LoadStep) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self.check_turn(step.turn)
        self.check_positions(step.positions_before)
        self.commit(step)
        self._faults.pass_by(StoreUnavailableError)

    def check_positions(self, before: Mapping[int, int]) -> None:
        if any(self._positions.get(stream, 0) != number for stream, number in before.items()):
            raise StepOutdatedError("this once")

    def commit(self, step: LoadStep) -> None:
        self._intent = None
        self._positions |= step.positions
        self._usage.update(step.events_by_org_and_period)
        for project, at in step.first_seen_by_project.items():
            self._first_seen[project] = min(at, self._first_seen.get(project, at))
        self.dead_letters += [letter.payload for letter in step.dead_letters]

    def read_events(self, after: int, bytes_max: int) -> list[LogRecord]:
        self._faults.pass_by(StoreUnavailableError)
        records: list[LogRecord] = []
        size = 0
        for record in self._outbox:
            if record.number <= after:
                continue
            size += len(record.payload)
            if records and size > bytes_max:
                break
            records.append(record)
        return records

    def trim_events(self, through: int) -> None:
        self._faults.pass_by(StoreUnavailableError)
        self._outbox = [record for record in self._outbox if record.number > through]

    def last_event_number(self) -> int:
        return self._last_number

    def waiting_bytes(self, after: int) -> int:
        return sum(len(record.payload) for record in self._outbox if record.number > after)

    def usage(self, period: str) -> dict[str, int]:
        return {org_id: count for (org_id, of), count in self._usage.items() if of == period}

    def first_seen(self) -> dict[str, int]:
        return dict(self._first_seen)

    def acknowledge_first_seen(self, seen: Mapping[str, int]) -> None:
        for project in seen:
            self._first_seen.pop(project, None)

    def dead_letter_count(self) -> int:
        return len(self.dead_letters)

    def log_losses(self) -> list[tuple[int, int]]:
        return []


def contents_of(rows: EventRows) -> Iterator[Content]:
    """Return the content of each row."""
    return zip(
        rows.project,
        texts_of(rows.name),
        rows.received_at,
        texts_of(rows.user),
        texts_of(rows.id),
        texts_of(rows.props),
        strict=True,
    )


def texts_of(column: Texts) -> list[str]:
    joined, start, texts = b"".join(column.pieces), 0, []
    for length in column.lengths:
        texts.append(joined[start : start + length].decode())
        start += length
    return texts
