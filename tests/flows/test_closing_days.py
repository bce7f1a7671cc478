"""Days close by themselves: what is read of them stays the same, and late events are still counted."""

from datetime import date, timedelta

import pytest
from structlog.testing import capture_logs

from mauve.core.batch import packed_header
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.load.loader import DayCloser, Loader
from mauve.metrics.questions import QuestionBatch
from mauve.metrics.registry import METRICS
from mauve.query import ReadStores
from mauve.query.read import rows_by_project
from mauve.stores.ledger.closed_days import ClosedDays, ClosedDaysReader
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.log import LogRecord
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from mauve.stores.warehouse.warehouse import ChdbWarehouse
from mauve.stores.warehouse.warehouse_reader import WarehouseReader

TODAY = date(2026, 11, 30)  # a Monday
NOON_MS = (TODAY.toordinal() - date(1970, 1, 1).toordinal()) * DAY_MS + 43_200_000
PROJECTS = ("proj_closing_1", "proj_closing_2")
METRICS_OF_USERS = ("mau", "dau", "signups", "signups_daily")


def day(offset):
    return TODAY + timedelta(days=offset)


class Source:
    """A log whose records are loaded at once."""

    def __init__(self):
        self.records = []

    def streams(self):
        return [7]

    def read(self, stream, after, bytes_max):
        return [record for record in self.records if record.number > after]

    def trim(self, stream, through):
        pass

    def lost_after(self, positions):
        return {}

    def lost_streams(self):
        return frozenset()


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "ledger.db"), busy_timeout_s=5)
    migrate(opened, LEDGER)
    yield opened
    opened.close()


@pytest.fixture
def warehouse(connection):
    opened = ChdbWarehouse(connection)
    for table in ("events", "actives", "seen"):
        connection.run(f"TRUNCATE TABLE mauve.{table}")
    return opened


@pytest.fixture
def closed(database):
    return ClosedDays(database)


@pytest.fixture
def days(closed, warehouse):
    return DayCloser(closed, warehouse)


@pytest.fixture
def send():
    """Append an event of each user to a log, as received at noon of a day."""
    source = Source()

    def send_users(offset, *users, name="view", project=PROJECTS[0]):
        items = b",".join(b'{"name":"%b","user":"%b"}' % (name.encode(), user.encode()) for user in users)
        at = NOON_MS + offset * DAY_MS
        header = packed_header(project, "org_1", at, at * 1000, 1)
        source.records.append(LogRecord(len(source.records) + 1, header + b"[" + items + b"]"))

    send_users.source = source
    return send_users


@pytest.fixture
def load(send, database, warehouse, days, clock):
    """Send, and load at once."""
    loader = Loader(send.source, LoadLedger(database), warehouse, clock, days)

    def load_users(*arguments, **named):
        if arguments:
            send(*arguments, **named)
        loader.load_next_range()

    yield load_users
    loader.close()


@pytest.fixture
def answers(database, connection):
    stores = ReadStores(WarehouseReader(lambda: connection), LedgerReader(database), ClosedDaysReader(database))

    def answer(first=-60, last=0):
        window = Window(day(first), day(last))
        batches = [QuestionBatch(PROJECTS, METRICS[metric], window) for metric in METRICS_OF_USERS]
        return {
            (batch.metric.name, project): list(rows)
            for batch in batches
            for project, rows in rows_by_project(batch, stores, NOON_MS)
        }

    return answer


@pytest.fixture
def history(send, load):
    for offset in range(-50, 1):
        send(offset, *(f"user {(offset * 7 + place) % 90}" for place in range(20)))
        send(offset, f"new {offset}", name="user_signup", project=PROJECTS[offset % 2])
    load()


def close_all(days, today=TODAY):
    while days.close_next_days(today):
        pass


def test_days_close_week_by_week_until_nine_days_ago(days, closed, history):
    ends = []
    while days.close_next_days(TODAY):
        ends.append((closed.through() - TODAY).days)
    assert ends == [-50, -43, -36, -29, -22, -15, -9]
    assert [end for end in ends[:-1] if day(end).isoweekday() != 7] == []


WINDOWS = ((-60, 0), (-29, 0), (-40, -10), (-9, 0), (-8, 0), (-33, -33), (-60, -51), (0, 0))


def test_closing_days_does_not_change_what_is_read(days, answers, history):
    before = {window: answers(*window) for window in WINDOWS}
    while days.close_next_days(TODAY):
        assert {window: answers(*window) for window in WINDOWS} == before


def test_closed_days_are_not_counted_again(days, answers, history, connection):
    close_all(days)
    before = answers(-40, -20)
    connection.run("TRUNCATE TABLE mauve.events")
    connection.run("DELETE FROM mauve.actives WHERE kind = 'active'")
    assert answers(-40, -20)["dau", PROJECTS[0]] == before["dau", PROJECTS[0]]


def test_an_event_of_a_closed_day_reopens_it_and_is_counted(days, closed, answers, history, load):
    close_all(days)
    before = answers()
    with capture_logs() as logs:
        load(-30, "late", "later")
    assert [each["event"] for each in logs] == ["days_reopened"]
    assert closed.through() == day(-31)
    after = answers()
    assert after["mau", PROJECTS[0]][0][0] == before["mau", PROJECTS[0]][0][0] + 2
    number = dict(before["dau", PROJECTS[0]])[str(day(-30))]
    assert dict(after["dau", PROJECTS[0]])[str(day(-30))] == number + 2
    close_all(days)
    assert closed.through() == day(-9)
    assert answers() == after


def test_a_clock_ahead_of_time_closes_too_many_days_and_loses_nothing(days, closed, answers, history, load):
    close_all(days, day(3))
    load(0, "a new user")
    load(-7, "claimed to be of last week")
    assert closed.through() == day(-8), "an open day needs no opening"
    load(-8, "late")
    before = answers()
    assert closed.through() == day(-9)
    close_all(days)
    assert answers() == before


def test_on_an_empty_warehouse_the_past_is_closed_at_once(days, closed, answers):
    close_all(days)
    assert closed.through() == day(-9)
    assert answers()["mau", PROJECTS[0]] == [(0,)]


def test_an_unknown_project_has_no_rows(days, answers, load):
    load(-20, "ann")
    close_all(days)
    assert answers()["dau", PROJECTS[1]] == []
    assert answers()["dau", PROJECTS[0]] == [(str(day(-20)), 1)]
