"""A log, a ledger and a warehouse on servers, in memory. A statement may land after its client has given up."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Intent, LoadStep, Turn
from mauve.stores.log import LogRecord, Lost, Reach
from mauve.stores.warehouse import EventRows, SameId, WarehouseUnavailableError
from support.simulated_stores import Faults, SimulatedLedger, SimulatedWarehouse, StoredRow

STAGED_S_MAX = 60.0
TOKEN_S = 3600.0


class ServerLog:
    """Durable streams that every loader reads. Reading never returns less than before."""

    def __init__(self, faults: Faults, streams: tuple[int, ...]) -> None:
        self._faults = faults
        self._records: dict[int, list[LogRecord]] = {stream: [] for stream in streams}
        self._last_number = 0
        self._trims = faults.rng.random() < 0.5  # A real one trims rarely.

    def append(self, stream: int, payload: bytes) -> None:
        self._last_number += 1
        self._records[stream].append(LogRecord(self._last_number, payload))

    def streams(self) -> list[int]:
        return list(self._records)

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        self._faults.pass_by(StoreUnavailableError)
        records: list[LogRecord] = []
        size = 0
        for record in self._records[stream]:
            if record.number <= after:
                continue
            size += len(record.payload)
            if records and size > bytes_max:
                break
            records.append(record)
        return records

    def records(self, stream: int, after: int, through: int) -> Iterator[LogRecord]:
        return (record for record in self._records[stream] if after < record.number <= through)

    def trim(self, stream: int, through: int) -> None:
        self._faults.pass_by(StoreUnavailableError)
        if self._trims:
            self._records[stream] = [record for record in self._records[stream] if record.number > through]

    def last_number(self, stream: int) -> int:
        return self._last_number

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        return sum(
            len(record.payload)
            for stream, records in self._records.items()
            for record in records
            if record.number > positions.get(stream, 0)
        )

    def stored_bytes(self) -> int:
        return self.backlog_bytes({})

    def largest_stream_bytes(self) -> int:
        return max(sum(len(record.payload) for record in records) for records in self._records.values())

    def quarantined(self) -> int:
        return 0

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        return {}

    def lost_streams(self) -> frozenset[int]:
        return frozenset()

    def reach(self) -> Reach:
        return Reach()

    def close(self) -> None:
        """Nothing: there is no connection."""


class ServerLedger(SimulatedLedger):
    """A commit may land after its client has given up. Its locks make the next write wait for it."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self._late: Callable[[], None] | None = None

    def land(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            late()

    def begin_turn(self) -> Turn:
        self.land()
        self.turn = Turn("a machine", self.turn.epoch + 1)
        return self.turn

    def intend(self, intent: Intent, turn: Turn | None) -> None:
        self.land()
        super().intend(intent, turn)

    def commit(self, step: LoadStep) -> None:
        if self._faults.draws_a_failure():
            self._late = lambda: super(ServerLedger, self).commit(step)
            raise StoreUnavailableError("no answer")
        super().commit(step)

    def finish(self, step: LoadStep) -> None:
        self.land()
        super().finish(step)


@dataclass(frozen=True)
class Staging:
    """The rows that one session has staged."""

    rows: list[StoredRow]
    number: int
    at_s: float
    server_start: int


@dataclass(frozen=True)
class Statement:
    token: tuple[str, ...]
    staging: Staging
    insert: Callable[[], None]


class WarehouseServer(SimulatedWarehouse):
    """Stores what has one token once, for as long as it remembers tokens; its staged rows end with it."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.now_s = 0.0
        self.server_start = 0
        self._stored_at: dict[tuple[str, ...], float] = {}  # by token
        self._late: list[Statement] = []

    def restart(self) -> None:
        self.server_start += 1

    def staged(self, rows: EventRows) -> tuple[Staging, list[SameId]]:
        same_ids = super().stage(rows)
        return Staging(self._staged, self._stages, self.now_s, self.server_start), same_ids

    def execute(self, statement: Statement) -> None:
        if statement.staging.server_start != self.server_start:
            raise WarehouseUnavailableError("the staged rows are lost")
        if self.now_s - statement.staging.at_s > STAGED_S_MAX:
            raise WarehouseUnavailableError("the rows were staged too long ago")
        if not self.remembers(statement.token):
            self._stored_at[statement.token] = self.now_s
            statement.insert()

    def remembers(self, token: tuple[str, ...]) -> bool:
        return self.now_s - self._stored_at.get(token, -TOKEN_S) < TOKEN_S

    def execute_late(self, statement: Statement) -> None:
        self._late.append(statement)

    def land(self) -> None:
        """Execute a statement whose client has given up."""
        if self._late:
            with suppress(WarehouseUnavailableError):  # No client waits for it.
                self.execute(self._late.pop(0))


class WarehouseSession:
    """One loader's connection to the warehouse, with its own staged rows and its own filter of ids."""

    def __init__(self, server: WarehouseServer, faults: Faults) -> None:
        self._server, self._faults = server, faults
        self.stored_after, self.ping, self.expire_ids = server.stored_after, server.ping, server.expire_ids
        self._staging = Staging([], 0, 0.0, -1)
        self._filter: set[str] | None = None  # None: it is filled from the table when it is needed

    def stage(self, rows: EventRows) -> list[SameId]:
        self._staging, same_ids = self._server.staged(rows)
        ids = self._filled_filter()
        found = [SameId(places, at if self._staging.rows[places[0]].id in ids else []) for places, at in same_ids]
        return [each for each in found if each.counted_at or len(each.places) > 1]

    def recover_ids(self, positions: Mapping[int, int], received_from_ms: int = 0) -> None:
        known = self._server.stored_after(positions, received_from_ms)
        ids = self._filled_filter()
        self._server.recover_ids(positions, received_from_ms)
        ids.update(row.id for row in self._server.events if row.counts and row.seq in known)

    def forget_ids(self) -> None:
        self._faults.pass_by(WarehouseUnavailableError)
        self._filter = None

    def _filled_filter(self) -> set[str]:
        if self._filter is None:
            self._filter = set(self._server.seen)
        return self._filter

    def commit(self, repeats: Collection[int], stored: Collection[int], range_name: str = "") -> None:
        staging, server = self._staging, self._server
        for row in staging.rows:
            row.counts = row.seq not in repeats
            row.stored = staging.number
        server.cut_short.add(staging.number)
        self._filled_filter().update(row.id for row in staging.rows if row.counts and row.seq not in stored)
        for statement in self._statements(staging, stored, range_name):
            self._faults.pass_by(WarehouseUnavailableError)
            if self._faults.draws_a_failure():
                server.execute_late(statement)
                raise WarehouseUnavailableError("no answer")
            server.execute(statement)
        server.cut_short.remove(staging.number)
        self._faults.pass_by(WarehouseUnavailableError)

    def _statements(self, staging: Staging, stored: Collection[int], range_name: str) -> Iterator[Statement]:
        rows, server = staging.rows, self._server
        new = [row for row in rows if row.seq not in stored]
        for name in sorted({row.content[1] for row in new}):
            found = [row for row in new if row.content[1] == name]
            yield Statement(("events", range_name, name), staging, partial(server.events.extend, found))
        ids = [row for row in new if row.counts and row.id]
        yield Statement(("seen", range_name), staging, lambda: server.add_ids(ids))
        users = {(row.day, row.content[3]) for row in rows if row.counts}
        yield Statement(("users", range_name), staging, lambda: server.users.update(users))
