"""The cost of a read when a project has very many events a day or very many names."""

import time
from datetime import date, timedelta

import pytest

from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.cancellation import deadline_at
from mauve.stores.clickhouse.schema import TABLES
from mauve.stores.clickhouse.warehouse_reader import ClickHouseWarehouseReader

DAY = date(2026, 11, 15)
DAY_BEGINS = (DAY - date(1970, 1, 1)).days * DAY_MS
RECENT = Window(DAY - timedelta(days=1), DAY + timedelta(days=1))
SCANNED_MAX = 600_000
# As they are loaded: in order of arrival, one range at a time.
EVENTS = """
INSERT INTO mauve.events (project, name, received_at, occurred_at, claimed_at, user, id, props, seq, day, counted)
SELECT '{project}', {name}, toInt64({since}) + intDiv(number * {for_ms}, {total}) AS moment, moment, '',
    '', toString(number), '', number, toDate(toUInt16(intDiv(moment, {day_ms}))), 1
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
    return ClickHouseWarehouseReader(lambda: engine)


@pytest.fixture
def fill(embedded_connection):
    def insert(project, total, since, for_ms, name="concat('event_', toString(number % 20))"):
        for start in range(0, total, AT_ONCE):
            count = min(AT_ONCE, total - start)
            facts = {"project": project, "since": since, "for_ms": for_ms, "total": total, "name": name}
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
