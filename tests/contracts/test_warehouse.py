"""What every warehouse promises to the loader.

Proves: two-loaders.
"""

import itertools
import time
from array import array

import pytest

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import EventRows, SameId, WarehouseUnavailableError, first_seq
from mauve.stores.warehouse import warehouse as clickhouse_warehouse
from mauve.stores.warehouse.warehouse import ChdbWarehouse

TODAY = time.time_ns() // 1_000_000 // DAY_MS  # ids expire after some days of the machine's own clock
NOON = TODAY * DAY_MS + DAY_MS // 2
streams = itertools.count(110)  # which no other test of the same engine uses
projects = itertools.count(1)


@pytest.fixture
def project():
    return f"proj_{next(projects)}"


@pytest.fixture
def stream():
    return next(streams)


def rows_of(project, stream, events, number=1):
    """Make rows from (name, user, id, occurred_at) with a record number."""
    rows = EventRows()
    for place, (name, user, id_, occurred_at) in enumerate(events):
        rows.project.append(project)
        rows.name.extend([name])
        rows.received_at.append(NOON)
        rows.occurred_at.append(occurred_at)
        rows.claimed_at.extend([""])
        rows.user.extend([user])
        rows.id.extend([id_])
        rows.props.extend_encoded([b'{"a":"\\u0000"}'])
        rows.seq.append(first_seq(stream, number) + place)
    return rows


def load(warehouse, rows, repeats=(), stored=()):
    found = warehouse.stage(rows)
    warehouse.commit(repeats, stored)
    return found


def counts(connection, project):
    """Return (rows, counted rows, distinct active, distinct signed up)."""
    ((stored, counted),) = connection.rows(
        f"SELECT count(), sum(counted) FROM mauve.events WHERE project = '{project}'"
    )
    kinds = [
        connection.rows(
            "SELECT toInt64(uniqCombined64Merge(17)(users)) FROM mauve.actives "
            f"WHERE project = '{project}' AND kind = '{kind}'"
        )[0][0]
        for kind in ("active", "signup")
    ]
    return (stored, counted, *kinds)


def test_committed_rows_are_counted(warehouse, connection, project, stream):
    events = [("view", "ann", "", NOON), ("view", "bob", "", NOON), ("view", "ann", "", NOON), ("view", "", "", NOON)]
    load(warehouse, rows_of(project, stream, [*events, ("user_signup", "eve", "", NOON)]))
    assert counts(connection, project) == (5, 5, 2, 1)


def test_staged_rows_are_not_stored_before_the_commit(warehouse, connection, project, stream):
    warehouse.stage(rows_of(project, stream, [("view", "ann", "", NOON)]))
    assert counts(connection, project) == (0, 0, 0, 0)
    load(warehouse, rows_of(project, stream, [("view", "bob", "", NOON)]))
    assert counts(connection, project) == (1, 1, 1, 0)


def test_repeats_are_stored_but_not_counted(warehouse, connection, project, stream):
    rows = rows_of(project, stream, [("view", "ann", "x", NOON), ("view", "bob", "x", NOON)])
    load(warehouse, rows, repeats={rows.seq[1]})
    assert counts(connection, project) == (2, 1, 1, 0)


def test_a_counted_id_is_found_in_its_own_project_only(warehouse, project, stream):
    load(warehouse, rows_of(project, stream, [("view", "ann", "x", NOON), ("view", "ann", "y", NOON)]))
    again = rows_of(project, stream, [("view", "bob", "y", NOON), ("view", "bob", "z", NOON)], number=2)
    assert load(warehouse, again) == [SameId([0], [NOON])]
    other = rows_of(f"{project}_other", stream, [("view", "bob", "y", NOON)], number=3)
    assert load(warehouse, other) == []


def test_an_id_that_did_not_count_is_not_found(warehouse, project, stream):
    rows = rows_of(project, stream, [("view", "ann", "x", NOON)])
    load(warehouse, rows, repeats=rows.seq)
    assert load(warehouse, rows_of(project, stream, [("view", "ann", "x", NOON)], number=2)) == []


def test_rows_that_share_an_id_are_returned_in_order(warehouse, project, stream):
    load(warehouse, rows_of(project, stream, [("view", "ann", "y", NOON)]))
    ids = ["x", "", "y", "z", "x", "", "y", "x"]
    found = load(warehouse, rows_of(project, stream, [("view", "ann", id_, NOON) for id_ in ids], number=2))
    assert sorted(found) == [SameId([0, 4, 7], []), SameId([2, 6], [NOON])]


def test_rows_keep_the_order_of_arrival_whatever_their_numbers(warehouse, project, stream):
    later, earlier = (rows_of(project, stream, [("view", "ann", "x", NOON)], number) for number in (9, 3))
    for column in ("project", "received_at", "occurred_at", "seq"):
        getattr(later, column).extend(getattr(earlier, column))
    for column in ("name", "claimed_at", "user", "id", "props"):
        getattr(later, column).pieces.extend(getattr(earlier, column).pieces)
        getattr(later, column).lengths.extend(getattr(earlier, column).lengths)
    assert load(warehouse, later, repeats={later.seq[1]}) == [SameId([0, 1], [])]
    assert warehouse.stored_after({stream: 0}) == {later.seq[0]: True, later.seq[1]: False}


@pytest.mark.parametrize("table", ["staged", "staged_repeats", "staged_stored"])
def test_lost_staged_rows_are_not_committed(open_warehouse, connection, project, stream, table):
    """An engine that restarts in between has lost them without notice."""
    losing = LosingConnection(connection, f"TRUNCATE TABLE {table}")
    warehouse = open_warehouse(losing)
    load(warehouse, rows_of(project, stream, [("view", "ann", "", NOON)]))
    rows = rows_of(project, stream, [("view", "bob", "x", NOON), ("view", "bob", "x", NOON)], number=2)
    warehouse.stage(rows)
    losing.is_losing = True
    with pytest.raises(WarehouseUnavailableError, match="staged"):
        warehouse.commit({rows.seq[1]}, {rows.seq[0]})
    assert counts(connection, project) == (1, 1, 1, 0)


class LosingConnection:
    """Loses a staged table right before each statement, once it is told to."""

    def __init__(self, connection, loss):
        self._connection, self._loss, self.is_losing = connection, loss, False

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def run(self, *statement):
        self._lose()
        self._connection.run(*statement)

    def run_with(self, *statement):
        self._lose()
        self._connection.run_with(*statement)

    def _lose(self):
        if self.is_losing:
            self._connection.run(self._loss)


def test_staged_rows_lost_immediately_are_not_counted(open_warehouse, connection, project, stream):
    insert = connection.insert_arrow

    class Forgetful:
        def __getattr__(self, name):
            return getattr(connection, name)

        def insert_arrow(self, table, stream):
            insert(table, stream)
            connection.run(f"TRUNCATE TABLE {table}")

    warehouse = open_warehouse(Forgetful())
    with pytest.raises(WarehouseUnavailableError, match="staged"):
        warehouse.stage(rows_of(project, stream, [("view", "ann", "x", NOON)]))


def test_rows_stored_after_a_position_are_returned_with_whether_they_count(warehouse, project, stream):
    first = rows_of(project, stream, [("view", "ann", "", NOON)], number=5)
    second = rows_of(project, stream, [("view", "ann", "x", NOON), ("view", "ann", "x", NOON)], number=6)
    load(warehouse, first)
    load(warehouse, second, repeats={second.seq[1]})
    assert warehouse.stored_after({stream: 5}) == {second.seq[0]: True, second.seq[1]: False}
    assert warehouse.stored_after({stream: 4}).keys() == {*first.seq, *second.seq}
    assert warehouse.stored_after({stream: 6}) == {}
    assert warehouse.stored_after({}) == {}


def test_stored_rows_received_before_a_moment_are_left_out(warehouse, project, stream):
    """However long before their receipt they occurred, and however far off the clock was."""
    moments = [NOON, NOON + 1, NOON + 40 * DAY_MS, DAY_MS, 70_000 * DAY_MS]
    for number, received_at in enumerate(moments, start=1):
        occurred = (received_at - 7 * DAY_MS, received_at)
        rows = rows_of(project, stream, [("view", "ann", "x", at) for at in occurred], number)
        rows.received_at[:] = array("q", [received_at] * 2)
        load(warehouse, rows)

    def found(received_from):
        stored = warehouse.stored_after({stream: 0}, received_from)
        return [number for number in range(1, 6) for place in range(2) if first_seq(stream, number) + place in stored]

    assert found(0) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found(NOON) == [1, 1, 2, 2, 3, 3, 5, 5]
    assert found(NOON + 1) == [2, 2, 3, 3, 5, 5]
    assert found(NOON + 2) == [3, 3, 5, 5]


def test_rows_already_stored_are_not_stored_twice(warehouse, connection, project, stream):
    rows = rows_of(project, stream, [("view", "ann", "x", NOON), ("view", "bob", "y", NOON)])
    load(warehouse, rows)
    load(warehouse, rows, stored=rows.seq)
    assert counts(connection, project) == (2, 2, 2, 0)


def test_a_day_begins_at_midnight_utc(warehouse, connection, project, stream):
    midnight = (TODAY + 1) * DAY_MS
    load(warehouse, rows_of(project, stream, [("view", "a", "", midnight - 1), ("view", "a", "", midnight)]))
    days = connection.rows(f"SELECT toUInt16(day) FROM mauve.events WHERE project = '{project}' ORDER BY day")
    assert days == [(TODAY,), (TODAY + 1,)]


def test_any_text_is_stored_unchanged(warehouse, connection, project, stream):
    strange = ["nul\x00inside", "tab\tnew\nline", "'quote\\", "👨‍👩‍👧", "\u2028", "x" * 256]
    load(warehouse, rows_of(project, stream, [(text, text, text, NOON) for text in strange]))
    assert counts(connection, project) == (6, 6, 6, 0)
    ((together,),) = connection.rows(
        f"SELECT sum(name = user AND user = id) FROM mauve.events WHERE project = '{project}'"
    )
    assert together == 6


def test_many_rows_of_many_months_are_one_load(warehouse, connection, project, stream):
    events = [("view", f"user {place % 700}", f"id {place}", NOON + place % 90 * DAY_MS) for place in range(1_000)]
    load(warehouse, rows_of(project, stream, events))
    assert counts(connection, project) == (1_000, 1_000, 700, 0)


def test_a_failing_engine_raises(connection):
    with pytest.raises(WarehouseUnavailableError):
        connection.run("SELECT * FROM mauve.no_such_table")


@pytest.mark.parametrize("table", ["events", "actives", "seen"])
def test_tables_are_durable_and_delete_merged_parts_soon(embedded_connection, table):
    ChdbWarehouse(embedded_connection)
    ((made_with,),) = embedded_connection.read(
        f"SELECT engine_full FROM system.tables WHERE database = 'mauve' AND name = '{table}'", {}
    )
    durable = ("fsync_after_insert", "fsync_part_directory", "min_rows_to_fsync_after_merge")
    for setting in (*durable, "cleanup_delay_period"):
        assert f"{setting} = 1" in made_with


def test_more_rows_than_any_range_holds_are_not_taken_for_an_unfinished_one(warehouse, project, stream, monkeypatch):
    load(warehouse, rows_of(project, stream, [("view", "ann", "", NOON)] * 3))
    monkeypatch.setattr(clickhouse_warehouse, "STORED_AFTER_MAX", 2)
    with pytest.raises(WarehouseUnavailableError, match="restore both from the same backup"):
        warehouse.stored_after({stream: 0})
