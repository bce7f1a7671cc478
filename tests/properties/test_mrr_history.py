"""The history of MRR compared with its definition, through a real ledger, in any order of recording.

Proves: mrr.
"""

from contextlib import closing
from datetime import date, timedelta
from itertools import count

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from mauve.core.subscriptions import MrrSums
from mauve.core.window import Window
from mauve.metrics.summaries import mrr_by_day
from mauve.stores.ledger import Entry
from mauve.stores.ledger import subscriptions as subscription_book
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.ledger_entries import a_version, mrr_of
from support.mrr_model import DAY_US, history_by_model, history_of

BASE = date(2014, 11, 10)  # the first day of a block of the largest size
BASE_US = (BASE - date(1970, 1, 1)).days * DAY_US
FAR = [-16_385, -16_384, -129, -128, -127, 127, 128, 16_383, 16_384]

days = st.integers(-7, 7).map(lambda offset: BASE + timedelta(days=offset))
moments = st.one_of(
    st.integers(-6 * DAY_US, 6 * DAY_US),
    st.integers(-6, 6).map(lambda number: number * DAY_US),
    st.sampled_from([-1, 0, 1]),
    st.sampled_from(FAR).map(lambda number: number * DAY_US),
).map(lambda offset: BASE_US + offset)
versions = st.builds(
    a_version,
    moments,
    id=st.sampled_from(["one", "two", "three"]),
    status=st.sampled_from(["active", "active", "canceled"]),
    mrr=st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**53 - 1]),
    currency=st.sampled_from(["eur", "usd"]),
    rank=st.sampled_from([b"", b"", b"a", b"b"]),
)
groups = st.lists(st.lists(versions, max_size=6), max_size=5)
numbers = count(1)


def open_ledger(tmp_path_factory):
    opened = Database(sqlite_url(tmp_path_factory.mktemp("ledger") / "ledger.db"), busy_timeout_s=5)
    migrate(opened, LEDGER)
    return opened


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with closing(open_ledger(tmp_path_factory)) as opened:
        yield opened


@pytest.fixture(scope="module")
def old_database(tmp_path_factory):
    """A database that no planted bug has written to."""
    with closing(open_ledger(tmp_path_factory)) as opened:
        yield opened


def check(database, groups, window, today):
    writer, reader, project = LedgerWriter(database), LedgerReader(database), f"proj_{next(numbers)}"
    recorded = []
    for group in groups:
        own = [
            a_version(**{name: getattr(each, name) for name in each.__struct_fields__} | {"project": project})
            for each in group
        ]
        writer.record([Entry(subscriptions=own)])
        recorded += own
        assert history_of(reader, project, *window, today) == history_by_model(recorded, window, today)
    now = history_by_model(recorded, Window(today, today), today)
    assert mrr_of(reader, project) == [(currency, mrr) for _, currency, mrr in now]


@settings(max_examples=200, deadline=None)
@given(groups, days, days, days)
@example([[a_version(BASE_US, mrr=0)]], BASE, BASE, BASE)
@example([[a_version(BASE_US, mrr=5), a_version(BASE_US, currency="usd")]], BASE, BASE, BASE)
def test_every_day_matches_the_versions_at_its_end(database, groups, one, other, today):
    check(database, groups, Window(min(one, other), max(one, other)), today)


def is_found(database):
    @settings(max_examples=60, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(groups)
    def run(groups):
        check(database, groups, Window(BASE - timedelta(days=7), BASE + timedelta(days=7)), BASE + timedelta(days=9))

    try:
        run()
    except AssertionError:
        return True
    return False


class TestPlantedBugs:
    """Checks of the check: each of these bugs must be found."""

    def test_without_a_bug_nothing_is_found(self, database):
        assert not is_found(database)

    def test_late_versions_that_correct_nothing(self, database, monkeypatch):
        monkeypatch.setattr(MrrSums, "insert", lambda *_: None)
        assert is_found(database)

    def test_late_versions_that_count_forever(self, database, monkeypatch):
        inserted = subscription_book.inserted_versions
        monkeypatch.setattr(
            subscription_book,
            "inserted_versions",
            lambda tx, new: (each._replace(after_day=None) for each in inserted(tx, new)),
        )
        assert is_found(database)

    def test_ranks_that_do_not_count(self, database, monkeypatch):
        monkeypatch.setattr(subscription_book, "replaces", lambda new, current: new.at >= current.at)
        assert is_found(database)


def test_a_version_from_before_the_calendar_counts_from_the_first_requested_day(database):
    long_ago = a_version(-62_135_596_800_000_000 - 3_600_000_000, mrr=5)  # 0000-12-31 23:00
    check(database, [[long_ago]], Window(BASE, BASE), BASE)


def test_a_window_in_the_future_is_empty(database):
    check(database, [[a_version(BASE_US)]], Window(BASE + timedelta(days=1), BASE + timedelta(days=9)), BASE)


def test_the_longest_window_has_rows_from_the_first_version_on_and_is_read_lazily(database):
    writer, reader = LedgerWriter(database), LedgerReader(database)
    writer.record([Entry(subscriptions=[a_version(BASE_US, project="proj_all", mrr=5)])])
    window = Window(date.min, date.max)
    rows = mrr_by_day(reader.mrr_changes(["proj_all"], window), window)
    assert [next(rows) for _ in range(2)] == [("2014-11-10", "eur", 5), ("2014-11-11", "eur", 5)]
