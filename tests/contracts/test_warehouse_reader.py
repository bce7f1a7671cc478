"""What every warehouse promises to the query plane. Rows are loaded through the loader's side."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.events import Activity
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.stores.warehouse import EventRows, WarehouseUnavailableError, first_seq
from mauve.stores.warehouse.schema import ADD_EVENT_DAYS
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from support.service import PATIENCE_S

DAY = date(2026, 11, 15)
NOON = (DAY - date(1970, 1, 1)).days * DAY_MS + DAY_MS // 2
ALWAYS = Window(date.min, date.max)
ANY_ACTIVITY = frozenset(Activity)
STREAM = 99
record_numbers = itertools.count(1)
projects = itertools.count(1)


@pytest.fixture
def engine(warehouse, connection):
    return warehouse, WarehouseReader(lambda: connection)


@pytest.fixture
def reader(engine):
    return engine[1]


@pytest.fixture
def project():
    return f"proj_read_{next(projects)}"


@pytest.fixture
def load(engine, project):
    """Load events given as (name, user, day), some of which do not count."""
    warehouse, _ = engine

    def load_events(events, repeats=(), project=project):
        rows = EventRows()
        seq = first_seq(STREAM, next(record_numbers) * 100)  # far enough apart for all rows of a test
        for place, (name, user, day) in enumerate(events):
            rows.project.append(project)
            rows.name.extend([name])
            rows.received_at.append(NOON)
            rows.occurred_at.append(NOON + (day - DAY).days * DAY_MS)
            rows.claimed_at.extend([""])
            rows.user.extend([user])
            rows.id.extend([""])
            rows.props.extend([""])
            rows.seq.append(seq + place)
        warehouse.stage(rows)
        warehouse.commit({seq + place for place in repeats}, ())

    return load_events


def day(offset):
    return DAY + timedelta(days=offset)


def users(reader, project, seen, window, weeks=None):
    return reader.users([project], seen, window, weeks).get(project, 0)


def users_by_day(reader, project, seen, window):
    return [row[1:] for row in reader.users_by_day([project], seen, window)]


def test_a_user_counts_once_however_often_and_however_active(reader, load, project):
    load(
        [
            ("view", "ann", day(0)),
            ("view", "ann", day(1)),
            ("user_signup", "ann", day(0)),
            ("user_signup", "bob", day(0)),
        ]
    )
    load([("view", "ann", day(0)), ("click", "eve", day(1)), ("view", "", day(1))])
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == 3
    assert users(reader, project, {Activity.ACTIVE}, ALWAYS) == 2
    assert users(reader, project, {Activity.SIGNUP}, ALWAYS) == 2
    assert users_by_day(reader, project, Activity.ACTIVE, ALWAYS) == [("2026-11-15", 1), ("2026-11-16", 2)]
    assert users_by_day(reader, project, Activity.SIGNUP, ALWAYS) == [("2026-11-15", 2)]


def test_events_are_counted_by_name_and_by_day(reader, load, project):
    load([("b", "", day(0)), ("a", "", day(0)), ("b", "", day(2)), ("user_signup", "x", day(1)), ("c", "", day(1))])
    load([("b", "", day(0))])
    assert reader.event_names(project, ALWAYS, 10) == [("b", 3), ("a", 1), ("c", 1), ("user_signup", 1)]
    assert reader.event_names(project, ALWAYS, 2) == [("b", 3), ("a", 1)]
    assert reader.event_count(project, "b", ALWAYS) == 3
    assert reader.event_days(project, "b", ALWAYS) == [("2026-11-15", 2), ("2026-11-17", 1)]


def test_repeats_are_in_no_metric(reader, load, project):
    load([("view", "ann", day(0)), ("view", "bob", day(0)), ("never", "eve", day(1))], repeats=(1, 2))
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == 1
    assert reader.event_names(project, ALWAYS, 10) == [("view", 1)]
    assert reader.event_count(project, "never", ALWAYS) == 0
    assert reader.event_days(project, "never", ALWAYS) == []


def test_an_empty_project_has_no_counts(reader, project):
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == 0
    assert users_by_day(reader, project, Activity.ACTIVE, ALWAYS) == []
    assert reader.event_names(project, ALWAYS, 10) == []
    assert reader.event_count(project, "view", ALWAYS) == 0
    assert reader.event_days(project, "view", ALWAYS) == []


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 0, 1), (-1, 0, 2), (0, 1, 2), (-1, 1, 3), (-9, -2, 0), (2, 9, 0)],
)
def test_a_window_includes_both_its_ends(reader, load, project, first, last, expected):
    load([("view", f"user {offset}", day(offset)) for offset in (-1, 0, 1)])
    window = Window(day(first), day(last))
    assert users(reader, project, ANY_ACTIVITY, window) == expected
    assert reader.event_count(project, "view", window) == expected
    assert len(reader.event_days(project, "view", window)) == expected
    assert len(users_by_day(reader, project, Activity.ACTIVE, window)) == expected
    assert len(reader.event_names(project, window, 10)) == min(expected, 1)


@pytest.mark.parametrize("window", [Window(date.min, date(1969, 12, 31)), Window(date(2200, 1, 1), date.max)])
def test_a_window_outside_the_engines_calendar_is_empty(reader, load, project, window):
    load([("view", "ann", day(0))])
    assert users(reader, project, ANY_ACTIVITY, window) == reader.event_count(project, "view", window) == 0
    assert users_by_day(reader, project, Activity.ACTIVE, window) == reader.event_names(project, window, 9) == []


def test_projects_are_isolated(reader, load, project):
    load([("view", "ann", day(0))])
    load([("view", "bob", day(0)), ("view", "eve", day(0))], project=f"{project}_test")
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == reader.event_count(project, "view", ALWAYS) == 1


ODD_NAMES = [
    "nul\0inside",
    "tab\tnew\nline\r",
    "'quote\\",
    "\\N",
    "\\t",
    "{name:String}",
    "' OR 1=1 --",
    "👨‍👩‍👧\u2028\x85",
    " ",
]


def test_any_name_is_found_and_returned_unchanged(reader, load, project):
    load([(name, "", day(0)) for name in ODD_NAMES])
    assert [reader.event_count(project, name, ALWAYS) for name in ODD_NAMES] == [1] * len(ODD_NAMES)
    assert reader.event_names(project, ALWAYS, 100) == [(name, 1) for name in sorted(ODD_NAMES, key=str.encode)]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=20))
def test_bound_parameters_arrive_unchanged(connection, text):
    assert connection.read("SELECT {text:String}, hex({text:String})", {"text": text}) == [
        [text, text.encode().hex().upper()]
    ]


def test_many_names_on_many_days_are_summed_exactly(reader, load, project):
    load([(f"name {place % 7}", "", day(-(place % 100))) for place in range(5_000)])
    load([(f"name {place % 7}", "", day(-(place % 100))) for place in range(5_000)])
    names = dict(reader.event_names(project, ALWAYS, 100))
    assert names == {f"name {rest}": 2 * len(range(rest, 5_000, 7)) for rest in range(7)}
    assert sum(count for _, count in reader.event_days(project, "name 3", ALWAYS)) == names["name 3"]


def test_distinct_counts_are_exact_while_small_and_approximate_beyond(reader, load, project):
    load([("view", f"user {number % 2_000}", day(0)) for number in range(4_000)])
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == 2_000
    load([("view", f"user {number}", day(1)) for number in range(60_000)])
    assert users(reader, project, ANY_ACTIVITY, ALWAYS) == pytest.approx(60_000, rel=0.015)  # three standard errors


def test_several_readers_read_in_parallel(reader, load, project):
    load([("view", "ann", day(0))])
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append(reader.event_count(project, "view", ALWAYS))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 8


@pytest.mark.usefixtures("engine")
def test_an_engine_that_cannot_be_opened_raises_and_is_retried(connection, project):
    attempts = iter([WarehouseUnavailableError("down"), connection])

    def open_connection():
        attempt = next(attempts)
        if isinstance(attempt, Exception):
            raise attempt
        return attempt

    reader = WarehouseReader(open_connection)
    with pytest.raises(WarehouseUnavailableError):
        reader.event_count(project, "view", ALWAYS)
    assert reader.event_count(project, "view", ALWAYS) == 0


class Stuck:
    """A connection on which the reads of one project block until they are released."""

    def __init__(self, slow_project, begun, go):
        self._slow_project, self._begun, self._go = slow_project, begun, go

    def read(self, _sql, parameters):
        if self._slow_project in parameters.values():
            self._begun.release()
            assert self._go.wait(PATIENCE_S * 2)
        return [[parameters["project_0"], f"day {parameters['first']}", 1]]

    def close(self):
        pass


def test_slow_reads_of_one_project_do_not_delay_another():
    begun, go = threading.Semaphore(0), threading.Event()
    window = Window(DAY, DAY + timedelta(days=1))
    with (
        ThreadPoolExecutor(4) as readers,
        closing(WarehouseReader(lambda: Stuck("proj_slow", begun, go))) as reader,
    ):
        slow = [readers.submit(reader.users_by_day, ["proj_slow"], Activity.ACTIVE, window) for _ in range(3)]
        try:
            for _ in range(5):  # three of the later halves and two of the earlier ones: as many as there are threads
                assert begun.acquire(timeout=PATIENCE_S)
            quick = readers.submit(reader.users_by_day, ["proj_quick"], Activity.ACTIVE, window).result(PATIENCE_S)
        finally:
            go.set()
        assert [project for project, _, _ in quick] == ["proj_quick"] * 2
        assert [len(each.result()) for each in slow] == [2] * 3


def test_counts_are_read_from_the_daily_sums(engine, load, connection, project):
    load([("view", "", day(0))])
    query = (
        f"SELECT sum(counted) FROM mauve.events WHERE project = '{project}' AND name = 'view' AND day = '2026-11-15'"
    )
    plan = connection.read(f"EXPLAIN projections = 1 {query}", {})
    assert any("event_days" in line for (line,) in plan)


def test_events_from_before_the_daily_sums_are_counted_too(reader, load, connection, project):
    connection.run("ALTER TABLE mauve.events DROP PROJECTION event_days SETTINGS mutations_sync = 1")
    load([("view", "", day(0)), ("view", "", day(1))])
    connection.run(ADD_EVENT_DAYS)
    load([("view", "", day(1))])
    assert reader.event_days(project, "view", ALWAYS) == [("2026-11-15", 1), ("2026-11-16", 2)]
    assert reader.event_names(project, ALWAYS, 10) == [("view", 3)]


class TestLatestEvents:
    def names(self, reader, project, window=ALWAYS, events_max=10):
        return [event.name for event in reader.latest_events(project, window, events_max)]

    def test_the_latest_arrivals_come_first(self, reader, load, project):
        load([("one", "ann", DAY), ("two", "", DAY)])
        load([("three", "ann", DAY - timedelta(days=1))])
        load([("other", "ann", DAY)], project="proj_other_latest")
        assert self.names(reader, project) == ["three", "two", "one"]
        assert self.names(reader, project, events_max=2) == ["three", "two"]

    def test_a_late_event_is_listed_by_its_arrival_and_one_that_arrived_before_the_window_is_not(
        self, reader, load, project
    ):
        load([("late", "", DAY - timedelta(days=7)), ("early", "", DAY + timedelta(days=1))])
        assert self.names(reader, project, Window(DAY, DAY)) == ["early", "late"]
        assert self.names(reader, project, Window(DAY - timedelta(days=7), DAY - timedelta(days=1))) == []
        assert self.names(reader, project, Window(DAY + timedelta(days=1), DAY + timedelta(days=2))) == []

    def test_a_repeat_is_listed_and_marked(self, reader, load, project):
        load([("view", "ann", DAY), ("view", "bob", DAY)], repeats=[1])
        assert [(event.user, event.counted) for event in reader.latest_events(project, ALWAYS, 5)] == [
            ("bob", 0),
            ("ann", 1),
        ]


def test_several_projects_are_read_together_without_mixing(reader, load, project):
    other = f"{project}_other"
    load([("view", "ann", day(0)), ("view", "bob", day(1))])
    load([("view", "ann", day(0)), ("view", "eve", day(0)), ("view", "eve", day(2))], project=other)
    asked = [other, project, "proj_never"]
    assert reader.users(asked, ANY_ACTIVITY, ALWAYS, None) == {project: 2, other: 2}
    assert reader.users_by_day(asked, Activity.ACTIVE, Window(day(0), day(2))) == sorted(
        [(project, "2026-11-15", 1), (project, "2026-11-16", 1), (other, "2026-11-15", 2), (other, "2026-11-17", 1)]
    )


class TestSummingUp:
    """The loader's side when days close: 2026-11-16 is a Monday."""

    WEEK = Window(date(2026, 11, 16), date(2026, 11, 22))

    @pytest.fixture
    def warehouse(self, engine, connection):
        connection.run("TRUNCATE TABLE mauve.actives")
        return engine[0]

    def test_the_users_of_each_day_match_the_reader(self, warehouse, reader, load, project):
        load([("view", f"user {place % 40}", day(place % 5)) for place in range(100)])
        load([("user_signup", "ann", day(2)), ("view", "ann", day(9))])
        found = warehouse.users_of_days(Window(day(0), day(4)))
        for seen in Activity:
            counted = reader.users_by_day([project], seen, Window(day(0), day(4)))
            assert sorted((each.project, each.day, each.users) for each in found if each.seen == seen) == counted
        assert warehouse.first_day() == day(0)

    def test_an_empty_warehouse_has_no_first_day(self, warehouse):
        assert warehouse.first_day() is None

    @pytest.mark.parametrize("times", [1, 3])
    @pytest.mark.parametrize("seen", [{Activity.ACTIVE}, {Activity.SIGNUP}, ANY_ACTIVITY])
    def test_a_merged_week_counts_like_its_days(self, warehouse, reader, load, project, times, seen):
        load([(("view", "user_signup")[place % 2], f"user {place % 60}", day(place % 16)) for place in range(400)])
        other = f"{project}_other"
        load([("view", "ann", day(3))], project=other)
        for _ in range(times):
            warehouse.merge_week(self.WEEK)
        for window in (ALWAYS, Window(day(0), day(12)), self.WEEK, Window(day(1), day(30))):
            assert reader.users([project, other], seen, window, self.WEEK) == reader.users(
                [project, other], seen, window, None
            )
        assert reader.users_by_day([project], Activity.ACTIVE, self.WEEK), "its days are there as before"

    def test_the_days_of_a_merged_week_are_not_read(self, warehouse, reader, load, project):
        load([("view", "ann", day(1))])
        warehouse.merge_week(self.WEEK)
        load([("view", "late", day(2))])
        assert users(reader, project, ANY_ACTIVITY, ALWAYS, self.WEEK) == 1
        assert users(reader, project, ANY_ACTIVITY, ALWAYS) == 2
        warehouse.merge_week(self.WEEK)
        assert users(reader, project, ANY_ACTIVITY, ALWAYS, self.WEEK) == 2
