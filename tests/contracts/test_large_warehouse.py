"""The cost of a read, or of a recovery, when there are very many events or names.

Proves: recovery-cost, large-reads.
"""

import re
import time
from datetime import date, timedelta

import pytest

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.cancellation import deadline_at
from mauve.stores.warehouse import first_seq
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse
from mauve.stores.warehouse.warehouse_reader import WarehouseReader

DAY = date(2026, 11, 15)
DAY_BEGINS = (DAY - date(1970, 1, 1)).days * DAY_MS
RECENT = Window(DAY - timedelta(days=1), DAY + timedelta(days=1))
SCANNED_MAX = 600_000
# As they are loaded: in order of arrival, one range at a time.
EVENTS = """
INSERT INTO mauve.events (project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted)
SELECT '{project}', {name}, toInt64({since}) + intDiv(number * {for_ms}, {total}) AS moment, moment, '',
    '', toString(number), '', {seq}, toDate(toUInt16(intDiv(moment, {day_ms}))), 1
FROM numbers({start}, {count})
"""
AT_ONCE = 250_000


class Noting:
    """The engine's connection, recording what was scanned."""

    def __init__(self, connection):
        self._connection = connection
        self.rows_scanned = 0

    def read(self, sql, parameters):
        if not sql.startswith("EXPLAIN"):
            estimate = self._connection.read(f"EXPLAIN ESTIMATE {sql}", parameters)
            self.rows_scanned += sum(rows for *_, rows, _ in estimate)
        return self._connection.read(sql, parameters)

    def close(self):
        pass


@pytest.fixture(scope="module")
def engine(embedded_connection):
    for statement in TABLES:
        embedded_connection.run(statement)
    yield Noting(embedded_connection)
    embedded_connection.run("TRUNCATE TABLE mauve.events")


@pytest.fixture
def reader(engine):
    engine.rows_scanned = 0
    return WarehouseReader(lambda: engine)


@pytest.fixture
def fill(embedded_connection):
    def insert(project, total, since, for_ms, name="concat('event_', toString(number % 20))", seq="number"):
        for start in range(0, total, AT_ONCE):
            count = min(AT_ONCE, total - start)
            facts = {"project": project, "since": since, "for_ms": for_ms, "total": total, "name": name, "seq": seq}
            embedded_connection.run(EVENTS.format(**facts, start=start, count=count, day_ms=DAY_MS))

    return insert


def ids(reader, project, events_max=20):
    with deadline_at(time.monotonic() + 300):  # however busy the machine is
        return [int(event.id) for event in reader.latest_events(project, RECENT, events_max)]


def test_the_latest_of_very_many_events_are_found_without_scanning_all(reader, engine, fill):
    fill("proj_busy", 1_500_000, DAY_BEGINS - DAY_MS, DAY_MS + DAY_MS // 2)
    assert ids(reader, "proj_busy") == list(range(1_499_999, 1_499_979, -1))
    assert engine.rows_scanned <= SCANNED_MAX


def test_a_burst_of_yesterday_is_found_too(reader, engine, fill):
    fill("proj_burst", 1_000_000, DAY_BEGINS - DAY_MS // 2, 60_000)
    fill("proj_burst", 3, DAY_BEGINS + DAY_MS // 4, 1_000)
    assert ids(reader, "proj_burst") == [2, 1, 0, *range(999_999, 999_982, -1)]
    assert engine.rows_scanned <= SCANNED_MAX


def test_few_events_are_found_in_one_query(reader, engine, fill):
    fill("proj_quiet", 30, DAY_BEGINS - DAY_MS, DAY_MS)
    assert ids(reader, "proj_quiet", 100) == list(range(29, -1, -1))
    assert ids(reader, "proj_never") == []


def test_more_names_than_fit_in_memory_are_read_most_frequent_first(reader, fill):
    # Names of the maximum length of 128 characters, four bytes each.
    fill("proj_names", 300_000, DAY_BEGINS, 1_000, "concat(repeat('👪', 121), leftPad(toString(number), 7, '0'))")
    fill("proj_names", 2, DAY_BEGINS, 1_000, "'view'")
    with deadline_at(time.monotonic() + 300):  # however busy the machine is
        names = reader.event_names("proj_names", RECENT, 10_001)
    assert names[0] == ("view", 2)
    assert len(names) == 10_001
    assert names[1:] == sorted(names[1:])


class Explaining:
    """The engine's connection, recording how many granules of the events each statement reads, and of how many."""

    def __init__(self, connection):
        self._connection = connection
        self.granules = []

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def rows(self, sql):
        self._explain(sql)
        return self._connection.rows(sql)

    def binary(self, sql):
        self._explain(sql)
        return self._connection.binary(sql)

    def _explain(self, sql):
        if "FROM events" not in sql:
            return
        plan = "\n".join(line for (line,) in self._connection.read(f"EXPLAIN indexes = 1 {sql}", {}))
        found = [(int(read), int(of)) for read, of in re.findall(r"Granules: (\d+)/(\d+)", plan)]
        self.granules.append((found[-1][0], found[0][1]) if found else (0, 0))


# Four streams take turns, as workers do, and four names.
OF_STREAM = f"bitShiftLeft(toUInt64(number % 4), 56) + toUInt64(number) * {first_seq(0, 1)}"
OF_NAME = "concat('event_', toString(intDiv(number, 4) % 4))"


def test_a_recovery_reads_only_granules_received_with_the_records_that_wait(engine, embedded_connection, fill):
    embedded_connection.run("TRUNCATE TABLE mauve.events")
    total, days = 1_000_000, 100
    fill("proj_long", total, DAY_BEGINS - (days - 1) * DAY_MS, days * DAY_MS, OF_NAME, OF_STREAM)
    embedded_connection.run("OPTIMIZE TABLE mauve.events FINAL")
    connection = Explaining(embedded_connection)
    warehouse = ClickHouseWarehouse(connection)
    last_hour = DAY_BEGINS + DAY_MS - 3_600_000
    waiting = dict.fromkeys(range(4), total - 400)
    stored = warehouse.stored_after(waiting, last_hour)
    assert len(stored) == 399
    warehouse.recover_ids(waiting, last_hour)
    assert len(connection.granules) == 2
    for read, of in connection.granules:
        assert of >= 100, "the table has many granules"
        assert read <= 8, "the last of each name, which may share one with the next"
    assert stored == warehouse.stored_after(waiting), "nothing is left out"
    assert connection.granules[-1][0] >= of // 2, "without the bound, nearly all are read"
