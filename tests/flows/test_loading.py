"""From the log into the warehouse, exactly once, whatever happens. Real engines with injected faults.

Proves: two-loaders, interrupted-load, loader-unreachable, missing-records, bad-record, slow-warehouse.
"""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import NoneType, SimpleNamespace

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from mauve.core.batch import packed_header
from mauve.core.times import DAY_MS
from mauve.load import runner as runner_module
from mauve.load.lease import LoaderLease
from mauve.load.loader import IDEMPOTENCY_WINDOW_MS, MISSING_TRIES_MAX, DayCloser, Loader
from mauve.load.runner import LoadMetrics, LoadParts, LoadRunner
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Entry, Intent, StepOutdatedError, Turn
from mauve.stores.ledger.closed_days import ClosedDays
from mauve.stores.ledger.loading import LeaseStore, LoadLedger
from mauve.stores.ledger.schema import load_lease
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.log import MIXED_STREAM, LogRecord, Lost, Reach
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError
from mauve.stores.warehouse.columns import seqs_as_arrow
from mauve.stores.warehouse.warehouse import COMMIT, ChdbWarehouse
from support.service import PATIENCE_S

NOW = time.time_ns() // 1_000_000
names = itertools.count(1)
stream_numbers = itertools.count(1)


class LogInMemory:
    """A log that is filled by hand and drops what is trimmed."""

    def __init__(self, stream):
        self.stream = stream
        self.held = []
        self.numbers = itertools.count(1)
        self.first = 1  # what was before it is deleted
        self.is_lost = False

    def append(self, payload):
        self.held.append(LogRecord(next(self.numbers), payload))

    def streams(self):
        return [self.stream]

    def read(self, stream, after, bytes_max):
        return [] if self.is_lost else [record for record in self.held if record.number > after][:50]

    def records(self, stream, after, through):
        return (record for record in self.held if after < record.number <= through)

    def last_number(self, stream):
        return max((record.number for record in self.held), default=0)

    def trim(self, stream, through):
        self.held = [record for record in self.held if record.number > through]

    def backlog_bytes(self, positions):
        after = positions.get(self.stream, 0)
        return sum(len(record.payload) for record in self.held if record.number > after)

    def stored_bytes(self):
        return self.backlog_bytes({})

    def quarantined(self):
        return 0

    def lost_after(self, positions):
        after = positions.get(self.stream, 0)
        return {self.stream: Lost(self.first - after - 1, self.first - 1)} if self.first > after + 1 else {}

    def lost_streams(self):
        return frozenset({self.stream} if self.is_lost else ())

    def reach(self):
        return Reach()


class TwoStreams:
    """A log with the streams of both."""

    def __init__(self, *logs):
        self._logs = {log.stream: log for log in logs}

    def streams(self):
        return list(self._logs)

    def read(self, stream, after, bytes_max):
        return self._logs[stream].read(stream, after, bytes_max)

    def trim(self, stream, through):
        self._logs[stream].trim(stream, through)

    def lost_after(self, positions):
        return {stream: lost for log in self._logs.values() for stream, lost in log.lost_after(positions).items()}

    def lost_streams(self):
        return frozenset().union(*(log.lost_streams() for log in self._logs.values()))


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "ledger.db"), busy_timeout_s=5)
    migrate(opened, LEDGER)
    yield opened
    opened.close()


@pytest.fixture
def source():
    return LogInMemory(next(stream_numbers))


@pytest.fixture
def ledger(database):
    return LoadLedger(database)


@pytest.fixture
def warehouse(connection):
    # Another test's mixed stream is in the same warehouse: its rows are not ours.
    connection.run("TRUNCATE TABLE IF EXISTS mauve.events")
    return ChdbWarehouse(connection)


@pytest.fixture
def days(database, warehouse):
    return DayCloser(ClosedDays(database), warehouse)


@pytest.fixture
def project():
    return f"proj_load_{next(names)}"


@pytest.fixture
def count(connection, project):
    def rows(condition="1"):
        return connection.rows(f"SELECT count() FROM mauve.events WHERE project = '{project}' AND {condition}")[0][0]

    return rows


def batch(project, items, received_at=NOW):
    return packed_header(project, "org_1", received_at, received_at * 1000, 1) + items


def test_a_batch_is_loaded_once_and_trimmed(source, ledger, warehouse, clock, project, count, days):
    source.append(batch(project, b'[{"name":"view","user":"ann"},{"name":"view"}]'))
    source.append(batch(project, b' {"name":"user_signup","user":"bob","props":null}'))
    loader = Loader(source, ledger, warehouse, clock, days)
    assert loader.load_next_range() == 2
    assert loader.load_next_range() == 0
    assert (count(), count("counted")) == (3, 3)
    assert source.held == []
    assert ledger.positions()[source.stream] == 2
    assert sum(ledger.usage(time.strftime("%Y-%m", time.gmtime(NOW / 1000))).values()) == 3
    assert ledger.first_seen() == {project: NOW}


def test_a_repeat_counts_once_within_seven_days_and_again_after_them(
    source, ledger, warehouse, clock, project, count, days
):
    loader = Loader(source, ledger, warehouse, clock, days)
    first = NOW - IDEMPOTENCY_WINDOW_MS
    for received_at in (first, first + 1, NOW - 1, NOW, NOW + 1):
        source.append(batch(project, b'{"name":"view","user":"ann","id":"x"}', received_at))
    loader.load_next_range()
    assert (count(), count("counted")) == (5, 2)
    source.append(batch(project, b'{"name":"view","user":"ann","id":"x"}', NOW + 2))
    loader.load_next_range()
    assert (count(), count("counted")) == (6, 2)


def test_ids_of_two_projects_are_independent(source, ledger, warehouse, clock, project, count, days):
    source.append(batch(project, b'{"name":"view","id":"x"}'))
    source.append(batch(f"{project}_other", b'{"name":"view","id":"x"}'))
    Loader(source, ledger, warehouse, clock, days).load_next_range()
    assert count("counted") == 1


def test_the_day_is_that_of_the_occurrence_and_the_claimed_time_is_kept(
    source, ledger, warehouse, clock, project, connection, count, days
):
    source.append(batch(project, b'[{"name":"a","at":%d},{"name":"b","at":"1970-01-01T00:00:00Z"}]' % (NOW - DAY_MS)))
    Loader(source, ledger, warehouse, clock, days).load_next_range()
    assert count(f"name = 'a' AND occurred_at = {NOW - DAY_MS}") == 1
    assert count(f"name = 'b' AND occurred_at = {NOW - 7 * DAY_MS} AND claimed_at = '1970-01-01T00:00:00Z'") == 1


def test_an_unreadable_record_becomes_a_dead_letter_and_blocks_no_others(
    source, ledger, warehouse, clock, project, count, days
):
    source.append(batch(project, b'{"name":"view"}'))
    source.append(b"\xff no batch")
    source.append(batch(project, b'[{"name":'))
    source.append(batch(project, b'{"name":"view"}'))
    Loader(source, ledger, warehouse, clock, days).load_next_range()
    assert count() == 2
    assert ledger.dead_letter_count() == 2
    assert source.held == []


def test_events_sent_with_payments_are_loaded_from_the_ledger(
    source, ledger, warehouse, clock, project, count, database, days
):
    LedgerWriter(database).record([Entry(events=batch(project, b'[{"name":"view","user":"ann"}]'))])
    loader = Loader(source, ledger, warehouse, clock, days)
    assert loader.load_next_range() == 1
    assert count("counted") == 1
    assert ledger.positions()[MIXED_STREAM] == 1
    assert loader.load_next_range() == 0


class Failing:
    """Wraps a real engine and fails at the chosen step, before or after it is done."""

    def __init__(self, engine, method, *, after):
        self._engine, self._method, self._after = engine, method, after
        self.armed = True

    def __getattr__(self, name):
        real = getattr(self._engine, name)
        if name != self._method:
            return real

        def fail_once(*arguments):
            if not self.armed:
                return real(*arguments)
            self.armed = False
            if self._after:
                real(*arguments)
            raise WarehouseUnavailableError("the plug was pulled")

        return fail_once


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["stage", "commit", "finish", "trim"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same loader", "new loader"])
def test_a_failure_at_any_step_loses_nothing_and_counts_nothing_twice(
    source, ledger, warehouse, clock, project, count, method, after, restarted, days
):
    for place in range(5):
        source.append(batch(project, b'[{"name":"view","user":"u%d","id":"%d"},{"name":"view"}]' % (place, place % 3)))
    failing = {
        "stage": lambda: Loader(source, ledger, Failing(warehouse, "stage", after=after), clock, days),
        "commit": lambda: Loader(source, ledger, Failing(warehouse, "commit", after=after), clock, days),
        "finish": lambda: Loader(source, Failing(ledger, "finish", after=after), warehouse, clock, days),
        "trim": lambda: Loader(Failing(source, "trim", after=after), ledger, warehouse, clock, days),
    }
    loader = failing[method]()
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    if restarted:
        loader = Loader(source, ledger, warehouse, clock, days)
    while loader.load_next_range():
        pass
    assert (count(), count("counted")) == (10, 8)
    assert sum(ledger.usage(time.strftime("%Y-%m", time.gmtime(NOW / 1000))).values()) == 8
    assert source.held == []


def test_an_unfinished_step_is_finished_before_anything_new(source, ledger, warehouse, clock, project, count, days):
    """New records of one stream could fill the next range, and leave the stored rows of another to be loaded again."""
    source.append(batch(project, b'{"name":"first"}'))
    LedgerWriter(ledger._database).record([Entry(events=batch(project, b'{"name":"mixed","id":"1"}'))])  # noqa: SLF001
    failing = Failing(ledger, "finish", after=False)
    loader = Loader(source, failing, warehouse, clock, days, range_bytes_max=100)
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    assert count() == 2
    source.append(batch(project, b'{"name":"second","id":"1"}'))
    while loader.load_next_range():
        pass
    assert (count(), count("counted"), count("name = 'second' AND counted")) == (3, 2, 0)
    assert sum(ledger.usage(time.strftime("%Y-%m", time.gmtime(NOW / 1000))).values()) == 2


def test_half_an_insert_is_completed(source, ledger, warehouse, clock, project, count, connection, days):
    """Rows of one load may be stored in part: an insert is atomic only within each month."""

    class StoresOnlyTheFirstRow(Failing):
        def __getattr__(self, name):
            if name != "commit" or not self.armed:
                return getattr(self._engine, name)

            def commit(repeats, stored, range_name):
                self.armed = False
                connection.insert_arrow("staged_stored", seqs_as_arrow(self.staged.seq[1:]))
                connection.run(COMMIT["events"].format(is_complete="1"))
                raise WarehouseUnavailableError("the plug was pulled")

            return commit

        def stage(self, rows):
            self.staged = rows
            return self._engine.stage(rows)

    source.append(batch(project, b'[{"name":"a","id":"1"},{"name":"b","id":"2"},{"name":"c","id":"1"}]'))
    loader = Loader(source, ledger, StoresOnlyTheFirstRow(warehouse, "commit", after=False), clock, days)
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    assert count() == 1
    loader.load_next_range()
    assert (count(), count("counted"), count("name = 'c' AND counted")) == (3, 2, 0)


def test_rows_that_a_refused_commit_has_stored_are_not_stored_again(
    source, ledger, warehouse, clock, project, count, days
):
    """Its range is halved. If the first half is interrupted, the rows of the other are known nevertheless."""

    class RefusesAfterStoring(Failing):
        def __getattr__(self, name):
            if name != "commit" or not self.armed:
                return getattr(self._engine, name)

            def commit(repeats, stored, range_name):
                self.armed = False
                self._engine.commit(repeats, stored, range_name)
                raise RowsRefusedError("too late")

            return commit

    for place in range(4):
        source.append(batch(project, b'{"name":"view","id":"%d"}' % place))
    refusing = RefusesAfterStoring(warehouse, "commit", after=True)
    loader = Loader(source, Failing(ledger, "finish", after=False), refusing, clock, days)
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    assert ledger.intent() == Intent({source.stream: 0}, {source.stream: 2})
    while loader.load_next_range():
        pass
    assert (count(), count("counted")) == (4, 4)
    assert sum(ledger.usage(time.strftime("%Y-%m", time.gmtime(NOW / 1000))).values()) == 4


def test_the_intended_range_is_loaded_again_under_the_same_name(source, ledger, warehouse, clock, project, count, days):
    class Named(Failing):
        names = ()

        def __getattr__(self, name):
            real = super().__getattr__(name)
            if name != "commit":
                return real

            def commit(repeats, stored, range_name):
                self.names += (range_name,)
                real(repeats, stored, range_name)

            return commit

    source.append(batch(project, b'{"name":"view"}'))
    named = Named(warehouse, "commit", after=True)
    loader = Loader(source, ledger, named, clock, days)
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    source.append(batch(project, b'{"name":"view"}'))
    while loader.load_next_range():
        pass
    stream = source.stream
    assert named.names == (f"{stream}:0-1", f"{stream}:0-1", f"{stream}:1-2")
    assert count() == 2
    assert ledger.intent() is None


class TestMissingRecords:
    @pytest.fixture
    def loader(self, source, ledger, warehouse, clock, project, days):
        """A loader that has stored a range of two records and failed; the log shows only the first."""
        source.append(batch(project, b'{"name":"view"}'))
        source.append(batch(project, b'{"name":"view"}'))
        loader = Loader(source, Failing(ledger, "finish", after=False), warehouse, clock, days)
        with pytest.raises(WarehouseUnavailableError):
            loader.load_next_range()
        self.hidden = source.held.pop()
        with pytest.raises(StoreUnavailableError, match="lacks records"):
            loader.load_next_range()
        return loader

    def test_the_intended_range_waits_for_a_log_that_lags(self, loader, source, ledger, count):
        assert ledger.positions() == {}
        source.held.append(self.hidden)
        assert loader.load_next_range() == 2
        assert count() == 2
        assert ledger.positions() == {source.stream: 2}

    def test_records_that_never_return_block_no_others(self, loader, source, ledger, project, count):
        source.numbers = itertools.count(3)
        source.append(batch(project, b'{"name":"last"}'))
        for _ in range(MISSING_TRIES_MAX - 1):
            with pytest.raises(StoreUnavailableError):
                loader.load_next_range()
        while loader.load_next_range():
            pass
        assert ledger.positions() == {source.stream: 3}
        assert count("name = 'last'") == 1

    def test_each_range_with_missing_records_gets_all_tries(self, loader, source, ledger, project):
        for _ in range(MISSING_TRIES_MAX - 1):
            with pytest.raises(StoreUnavailableError):
                loader.load_next_range()
        while loader.load_next_range():
            pass
        source.numbers = itertools.count(3)
        source.append(batch(project, b'{"name":"view"}'))
        ledger.intend(Intent({source.stream: 2}, {source.stream: 4}), None)
        loader.begin_turn(Turn("a", 1))
        for _ in range(MISSING_TRIES_MAX):
            with pytest.raises(StoreUnavailableError, match="lacks records"):
                loader.load_next_range()


class TestLostStreams:
    def test_a_stream_that_is_lost_keeps_its_position_and_is_loaded_once_restored(
        self, source, ledger, warehouse, clock, days, project, count
    ):
        other = LogInMemory(next(stream_numbers))
        both = TwoStreams(source, other)
        for log in (source, other):
            log.append(batch(project, b'{"name":"view"}'))
        loader = Loader(both, Failing(ledger, "finish", after=False), warehouse, clock, days)
        with pytest.raises(WarehouseUnavailableError):
            loader.load_next_range()
        assert count() == 2, "the rows are stored, but the positions are not committed"
        other.is_lost = True
        for _ in range(MISSING_TRIES_MAX):
            with pytest.raises(StoreUnavailableError, match="lacks records"):
                loader.load_next_range()
        source.append(batch(project, b'{"name":"view"}'))
        while loader.load_next_range():
            pass
        assert (ledger.positions(), ledger.dead_letter_count()) == ({source.stream: 2}, 0)
        other.is_lost = False
        other.append(batch(project, b'{"name":"last"}'))
        while loader.load_next_range():
            pass
        assert ledger.positions() == {source.stream: 2, other.stream: 2}
        assert (count("name = 'view'"), count("name = 'last'")) == (3, 1)


class TestDeletedRecords:
    """Records that were not loaded are gone from the start of the log: waiting for them is useless."""

    def test_an_intended_range_whose_records_were_deleted_is_not_tried_again(
        self, source, ledger, warehouse, clock, days, project, count
    ):
        ledger.intend(Intent({source.stream: 0}, {source.stream: 2}), None)
        source.numbers, source.first = itertools.count(4), 4
        source.append(batch(project, b'{"name":"last"}'))
        loader = Loader(source, ledger, warehouse, clock, days)
        assert loader.load_next_range() == 1
        assert (ledger.positions(), ledger.intent(), count("name = 'last'")) == ({source.stream: 4}, None, 1)
        assert (ledger.dead_letter_count(), loader.lost_messages) == (1, 3)

    def test_they_are_passed_over_once_and_recorded_even_if_nothing_follows(
        self, source, ledger, warehouse, clock, days, project, count
    ):
        source.append(batch(project, b'{"name":"view"}'))
        loader = Loader(source, ledger, warehouse, clock, days)
        assert loader.load_next_range() == 1
        source.numbers, source.first = itertools.count(8), 8
        for _ in range(3):
            assert loader.load_next_range() == 0
        assert (ledger.positions(), ledger.dead_letter_count()) == ({source.stream: 7}, 1)
        source.append(batch(project, b'{"name":"last"}'))
        assert loader.load_next_range() == 1
        assert (count("name = 'last'"), loader.lost_messages) == (1, 6)

    def test_a_loader_whose_positions_are_outdated_records_nothing(
        self, source, ledger, warehouse, clock, days, project
    ):
        source.append(batch(project, b'{"name":"view"}'))
        late = Loader(source, ledger, warehouse, clock, days)
        assert late.load_next_range() == 1
        source.append(batch(project, b'{"name":"view"}'))
        assert Loader(source, ledger, warehouse, clock, days).load_next_range() == 1
        source.first = 3  # trimmed by the other one
        with pytest.raises(StepOutdatedError):
            late.load_next_range()
        assert (ledger.dead_letter_count(), late.lost_messages) == (0, 0)


class Forgetting(Failing):
    """Counts how often ids are forgotten."""

    count = 0

    def __getattr__(self, name):
        if name == "forget_ids":
            self.count += 1
        return super().__getattr__(name)


def test_ids_are_forgotten_once_when_another_loader_may_have_counted_some(source, ledger, warehouse, clock, days):
    forgetting = Forgetting(warehouse, "forget_ids", after=False)
    loader = Loader(source, ledger, forgetting, clock, days)

    def forgotten(epoch):
        loader.begin_turn(Turn("a", epoch))
        before = forgetting.count
        loader.load_next_range()
        loader.load_next_range()
        return forgetting.count - before

    loader.begin_turn(Turn("a", 7))
    with pytest.raises(WarehouseUnavailableError):
        loader.load_next_range()
    assert [forgotten(epoch) for epoch in (8, 9, 10, 12, 13)] == [1, 0, 0, 1, 0]


def test_ids_are_forgotten_if_a_failover_gave_the_same_epoch_to_another_loader(
    source, ledger, warehouse, clock, days, project, database
):
    forgetting = Forgetting(warehouse, "never", after=False)
    loader, other = (Loader(source, ledger, each, clock, days) for each in (forgetting, warehouse))
    lease = LeaseStore(database)

    def load(by, holder):
        turn = lease.acquire(holder, PATIENCE_S)
        by.begin_turn(turn)
        source.append(batch(project, b'{"name":"view"}'))
        assert by.load_next_range() == 1
        lease.release(turn)
        return turn.epoch, forgetting.count

    assert [load(loader, "a") for _ in range(2)] == [(1, 1), (2, 1)]
    with database.writing() as tx:  # as on a standby that did not get the last commit
        tx.execute(sa.update(load_lease).values(epoch=1))
    assert load(other, "b") == (2, 1)
    assert load(loader, "a") == (3, 2)


class Paused:
    """A warehouse whose next commit pauses, before or after its work."""

    def __init__(self, warehouse, *, after):
        self._warehouse, self._after = warehouse, after
        self.reached, self.resumed = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._warehouse, name)

    def commit(self, *arguments):
        if self._after:
            self._warehouse.commit(*arguments)
        self.reached.set()
        assert self.resumed.wait(PATIENCE_S)
        if not self._after:
            self._warehouse.commit(*arguments)


class TestTwoLoaders:
    @pytest.fixture
    def new_runner(self, source, ledger, database, clock, days):
        leases = []

        def create(holder, warehouse, renew_every_s=None):
            parts = LoadParts(
                loader=Loader(source, ledger, warehouse, clock, days),
                lease=LoaderLease(LeaseStore(database), holder, ttl_s=PATIENCE_S, renew_every_s=renew_every_s),
                days=days,
                clock=clock,
                source=source,
                ledger=ledger,
                note_first_event=lambda _project, _at: None,
                close=lambda: None,
            )
            runner = LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))
            leases.append(parts.lease)
            return runner, parts.lease

        yield create
        for lease in leases:
            lease.close()

    @pytest.fixture
    def expire(self, database):
        def expire():
            with database.writing() as tx:
                tx.execute(sa.update(load_lease).values(expires_at=0))

        return expire

    @pytest.mark.parametrize("after", [True, False], ids=["after its commit", "before its commit"])
    def test_one_that_was_paused_while_another_took_over_changes_nothing(
        self, new_runner, expire, source, ledger, warehouse, project, count, connection, after
    ):
        for place in range(5):
            source.append(batch(project, b'[{"name":"view","id":"%d"},{"name":"view"}]' % (place % 3)))
        paused = Paused(warehouse, after=after)
        first, _ = new_runner("first", paused)
        second, second_lease = new_runner("second", warehouse)
        with ThreadPoolExecutor(1) as thread, capture_logs() as logs:
            stepping = thread.submit(first.step)
            assert paused.reached.wait(PATIENCE_S)
            second.step()
            assert count() == (10 if after else 0), "the lease is not free"
            expire()
            source.append(batch(project, b'{"name":"view","id":"0"}'))
            second.step()
            self.check(count, ledger)
            connection.run("TRUNCATE TABLE staged")  # Its staged rows are lost.
            paused.resumed.set()
            assert isinstance(stepping.exception(PATIENCE_S), NoneType if after else WarehouseUnavailableError)
            first.step()
        self.check(count, ledger)
        assert first.caught_up_s_ago is None, "it does not know"
        turns = [line["event"] for line in logs if line["event"] in {"loader_active", "loader_waiting"}]
        assert turns == ["loader_active", "loader_waiting", "loader_active", "loader_waiting"]
        second_lease.close()
        source.append(batch(project, b'{"name":"last"}'))
        first.step()
        assert count("name = 'last' AND counted") == 1

    def test_one_that_does_not_reach_the_warehouse_lets_the_other_load(
        self, new_runner, source, warehouse, project, count, monkeypatch
    ):
        class Unreachable:
            def __getattr__(self, name):
                raise WarehouseUnavailableError("no route to host")

        source.append(batch(project, b'{"name":"view"}'))
        first, _ = new_runner("first", Unreachable(), renew_every_s=PATIENCE_S)
        second, _ = new_runner("second", warehouse, renew_every_s=PATIENCE_S)
        for expected in (0, 0, 1):
            with pytest.raises(WarehouseUnavailableError):
                first.step()
            second.step()
            assert count() == expected
        monkeypatch.setattr(LoaderLease, "is_yielding", True)
        began = time.monotonic()
        time.sleep(0.05)
        first.step()
        waited_ms = int((time.monotonic() - began) * 1000)
        assert first.status()["load_lag_ms"] >= waited_ms, "no other loader may have loaded"
        monkeypatch.setattr(LoaderLease, "is_yielding", False)
        began = time.monotonic()
        first.step()
        assert first.status()["load_lag_ms"] <= (time.monotonic() - began) * 1000

    def check(self, count, ledger):
        assert (count(), count("counted")) == (11, 8)
        assert sum(ledger.usage(time.strftime("%Y-%m", time.gmtime(NOW / 1000))).values()) == 8

    def test_work_that_needs_the_loader_waits_until_the_other_has_loaded(
        self, new_runner, source, warehouse, project, count, monkeypatch
    ):
        first, _ = new_runner("first", warehouse)
        first.load_pending()
        # The clocks of the machines that accepted these were fast by an hour, right, and slow.
        for received_at in (NOW + 3_600_000, NOW, NOW - 3_600_000):
            source.append(batch(project, b'{"name":"view"}', received_at=received_at))
        waits = []

        def wait(_seconds):
            source.append(batch(project, b'{"name":"later"}'))  # It never ends, and is not waited for.
            waits.append(count("name = 'view'"))
            first.step()

        second, _ = new_runner("second", warehouse)
        monkeypatch.setattr(runner_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
        second.load_pending()
        assert (waits, count("name = 'view'")) == ([0], 3)
        source.append(batch(project, b'{"name":"view"}'))
        monkeypatch.setattr(runner_module, "OTHER_LOADER_S_MAX", -1)
        with pytest.raises(StoreUnavailableError, match="another machine is loading"):
            second.load_pending()


def test_only_the_record_with_refused_rows_becomes_a_dead_letter(
    source, ledger, warehouse, clock, project, count, days
):
    class RefusesPoison:
        def __getattr__(self, name):
            return getattr(warehouse, name)

        def stage(self, rows):
            if b"poison" in b"".join(rows.name.pieces):
                raise RowsRefusedError("Code: 53. the rows are poison")
            return warehouse.stage(rows)

    for place in range(9):
        source.append(batch(project, b'{"name":"%s"}' % (b"poison" if place in {0, 4} else b"view")))
    loader = Loader(source, ledger, RefusesPoison(), clock, days)
    assert loader.load_next_range() == 9
    assert count() == 7
    assert ledger.dead_letter_count() == 2
    assert source.held == []
    assert loader.load_next_range() == 0


def test_an_engine_that_is_down_causes_no_dead_letters(source, ledger, warehouse, clock, project, count, days):
    class Down:
        def stage(self, rows):
            raise WarehouseUnavailableError("down")

        def ping(self):
            pass

        def stored_after(self, positions, received_from_ms):
            return warehouse.stored_after(positions, received_from_ms)

    source.append(batch(project, b'{"name":"view"}'))
    loader = Loader(source, ledger, Down(), clock, days)
    for _ in range(3):
        with pytest.raises(WarehouseUnavailableError):
            loader.load_next_range()
    assert ledger.dead_letter_count() == 0
    assert len(source.held) == 1


def test_a_ledger_that_is_down_leaves_the_log_unchanged(source, ledger, warehouse, clock, project, count, days):
    class Down:
        def positions(self):
            raise StoreUnavailableError("down")

    source.append(batch(project, b'{"name":"view"}'))
    with pytest.raises(StoreUnavailableError):
        Loader(source, Down(), warehouse, clock, days).load_next_range()
    assert len(source.held) == 1
