"""A counted id is found again, however many there are and whatever happens to the filters in front.

Proves: old-backlog.
"""

import itertools
import time

import pytest

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import EventRows, WarehouseUnavailableError, first_seq, seen_ids

# A day ahead: midnight may come while the tests run.
TODAY = time.time_ns() // 1_000_000 // DAY_MS + 1
STREAM = 201
numbers = itertools.count(1)
projects = itertools.count(1)


@pytest.fixture
def project():
    return f"ids_{next(projects)}"


@pytest.fixture
def empty(warehouse, connection):
    connection.run("TRUNCATE TABLE mauve.seen")


def rows_of(project, ids, days_ago=0):
    rows = EventRows()
    for begin in range(0, len(ids), 1_000):
        some = ids[begin : begin + 1_000]
        moments = [(TODAY - days_ago) * DAY_MS + 1] * len(some)
        rows.project += [project] * len(some)
        rows.name.extend(["view"] * len(some))
        rows.received_at.extend(moments)
        rows.occurred_at.extend(moments)
        rows.id.extend(some)
        rows.seq.extend(range(first := first_seq(STREAM, next(numbers)), first + len(some)))
        for column in (rows.claimed_at, rows.user, rows.props):
            column.extend_empty(len(some))
    return rows


def load(warehouse, rows):
    found = warehouse.stage(rows)
    warehouse.commit((), ())
    return found


def found_again(warehouse, project, ids):
    """Return the indexes of those counted before."""
    return sorted(place for same in warehouse.stage(rows_of(project, ids)) for place in same.places)


@pytest.mark.parametrize("count", [7, seen_ids._INLINE_IDS_MAX + 500], ids=["few", "many"])  # noqa: SLF001
def test_all_counted_ids_are_found_and_no_others(warehouse, project, count):
    known = [f"known {number}" for number in range(count)]
    assert load(warehouse, rows_of(project, known)) == []
    new = [f"new {number}" for number in range(count)]
    both = [id_ for pair in zip(new, known, strict=True) for id_ in pair]
    assert found_again(warehouse, project, both) == list(range(1, 2 * count, 2))


def test_an_id_counted_on_several_days_is_found_with_all_of_them(warehouse, project):
    for days_ago in (5, 2, 6):
        load(warehouse, rows_of(project, ["x"], days_ago))
    (same,) = warehouse.stage(rows_of(project, ["x"]))
    assert sorted(same.counted_at) == [(TODAY - days_ago) * DAY_MS + 1 for days_ago in (6, 5, 2)]


def test_counted_ids_are_known_after_a_restart(warehouse, open_warehouse, project):
    known = [f"id {number}" for number in range(300)]
    load(warehouse, rows_of(project, known))
    assert found_again(open_warehouse(), project, known) == list(range(300))


def test_a_full_filter_grows(open_warehouse, project, monkeypatch, empty):
    monkeypatch.setattr(seen_ids, "CAPACITY_MIN", 16)
    warehouse = open_warehouse()
    known = [f"id {number}" for number in range(2_000)]
    for begin in range(0, 2_000, 100):
        assert load(warehouse, rows_of(project, known[begin : begin + 100])) == []
    (day_filter,) = warehouse._seen._filters.values()  # noqa: SLF001 - nothing else shows its size
    assert 2_000 <= day_filter.capacity <= 2 * 2_000
    assert found_again(warehouse, project, known) == list(range(2_000))


def test_filters_stay_within_their_memory_and_miss_nothing(open_warehouse, project, monkeypatch, empty):
    monkeypatch.setattr(seen_ids, "CAPACITY_MIN", 16)
    monkeypatch.setattr(seen_ids, "FILTER_BYTES_MAX", 1_024)
    warehouse = open_warehouse()
    known = [f"id {number}" for number in range(2_000)]
    for begin in range(0, 2_000, 100):
        load(warehouse, rows_of(project, known[begin : begin + 100]))
    assert warehouse._seen.filter_bytes <= 1_024  # noqa: SLF001
    assert found_again(warehouse, project, known) == list(range(2_000))
    assert found_again(warehouse, project, [f"new {number}" for number in range(500)]) == []


def test_the_ids_of_a_failed_step_are_known_after_recovery(warehouse, connection, project, open_warehouse):
    rows = rows_of(project, ["x", "y"])
    load(warehouse, rows)
    connection.run(f"ALTER TABLE mauve.seen DELETE WHERE received_day = toDate({TODAY}) SETTINGS mutations_sync = 1")
    assert found_again(warehouse, project, ["x", "y"]) == []
    position = (rows.seq[0] >> 10) & (2**46 - 1)
    warehouse.recover_ids({STREAM: position - 1})
    assert found_again(open_warehouse(), project, ["y", "z", "x"]) == [0, 2]


def test_filters_for_old_days_are_dropped_and_rebuilt_when_needed(open_warehouse, project, empty):
    warehouse = open_warehouse()
    load(warehouse, rows_of(project, ["old"], days_ago=8))
    load(warehouse, rows_of(project, ["new"]))
    found_again(warehouse, project, ["new"])
    assert list(warehouse._seen._filters) == [TODAY]  # noqa: SLF001
    (same,) = warehouse.stage(rows_of(project, ["old"], days_ago=2))
    assert same.counted_at == [(TODAY - 8) * DAY_MS + 1]


def test_the_ids_of_a_step_over_several_days_are_all_known(open_warehouse, project, empty):
    warehouse = open_warehouse()
    backlog = rows_of(project, ["monday"], days_ago=3)
    for id_, days_ago in (("tuesday", 2), ("today", 0)):
        later = rows_of(project, [id_], days_ago)
        for column in ("project", "received_at", "occurred_at", "seq"):
            getattr(backlog, column).extend(getattr(later, column))
        for column in ("name", "claimed_at", "user", "id", "props"):
            getattr(backlog, column).pieces.extend(getattr(later, column).pieces)
            getattr(backlog, column).lengths.extend(getattr(later, column).lengths)
    assert load(warehouse, backlog) == []
    assert found_again(warehouse, project, ["today", "other", "monday", "tuesday"]) == [0, 2, 3]


def test_a_filter_that_cannot_be_built_leaves_the_previous_one(connection, project, monkeypatch, empty, open_warehouse):
    monkeypatch.setattr(seen_ids, "CAPACITY_MIN", 16)
    warehouse = open_warehouse()
    known = [f"id {number}" for number in range(20)]
    load(warehouse, rows_of(project, known))
    warehouse.stage(rows_of(project, [f"more {number}" for number in range(500)]))
    with monkeypatch.context() as broken:
        broken.setattr(connection, "binary", fail)
        with pytest.raises(WarehouseUnavailableError):
            warehouse.commit((), ())
    assert found_again(warehouse, project, known) == list(range(20))


def fail(sql):
    raise WarehouseUnavailableError("no memory, this once")


def test_a_step_retried_many_times_stores_each_id_once(warehouse, connection, project, empty):
    rows = rows_of(project, [f"id {number}" for number in range(50)])
    load(warehouse, rows)
    before = {STREAM: ((rows.seq[0] >> 10) & (2**46 - 1)) - 1}
    for _ in range(3):
        warehouse.recover_ids(before)
        warehouse.stage(rows)
        warehouse.commit((), set(rows.seq))
    assert connection.rows("SELECT count() FROM mauve.seen") == [(50,)]


def days_kept(connection):
    return [day for (day,) in connection.rows("SELECT DISTINCT toUInt16(received_day) FROM mauve.seen ORDER BY 1")]


def test_ids_expire_by_what_was_loaded_not_by_the_clock(open_warehouse, connection, project, empty):
    """After an outage of weeks, an event that waited may still repeat one from a week before."""
    warehouse = open_warehouse()
    for days_ago in range(40, 20, -1):
        load(warehouse, rows_of(project, [f"of {days_ago}"], days_ago))
    connection.run("OPTIMIZE TABLE mauve.seen FINAL")
    warehouse.expire_ids((TODAY - 30) * DAY_MS)
    assert days_kept(connection) == list(range(TODAY - 38, TODAY - 20)), "those that were too old then are dropped"
    (same,) = warehouse.stage(rows_of(project, ["of 30"], days_ago=24))
    assert same.counted_at == [(TODAY - 30) * DAY_MS + 1]
    warehouse.expire_ids((TODAY - 20) * DAY_MS)
    assert days_kept(connection) == list(range(TODAY - 29, TODAY - 20))
    (same,) = open_warehouse().stage(rows_of(project, ["of 27"], days_ago=20))
    assert same.counted_at == [(TODAY - 27) * DAY_MS + 1]


def test_a_clock_that_jumps_ahead_expires_no_recent_ids(open_warehouse, connection, project, empty):
    warehouse = open_warehouse()
    for days_ago in range(8, -1, -1):
        load(warehouse, rows_of(project, ["x"], days_ago))
    warehouse.expire_ids((TODAY + 3_000) * DAY_MS)
    assert days_kept(connection) == list(range(TODAY - 8, TODAY + 1))


def test_ids_that_cannot_be_dropped_do_not_stop_the_loader(open_warehouse, connection, project, monkeypatch, empty):
    warehouse = open_warehouse()
    for days_ago in range(12, -1, -1):
        load(warehouse, rows_of(project, ["x"], days_ago))
    with monkeypatch.context() as broken:
        broken.setattr(connection, "run", fail)
        warehouse.expire_ids(TODAY * DAY_MS)
    assert len(days_kept(connection)) == 13
    warehouse.expire_ids(TODAY * DAY_MS)
    assert len(days_kept(connection)) == 9


def test_opening_the_warehouse_again_rewrites_no_ids(open_warehouse, connection, project):
    load(open_warehouse(), rows_of(project, ["x"]))
    before = connection.rows("SELECT count() FROM system.mutations WHERE table = 'seen'")
    open_warehouse()
    assert connection.rows("SELECT count() FROM system.mutations WHERE table = 'seen'") == before
