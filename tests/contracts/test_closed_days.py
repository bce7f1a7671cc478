"""What every engine promises about closed days."""

from datetime import date, timedelta

import pytest

from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.stores.ledger.closed_days import ClosedDays, ClosedDaysReader, DayUsers

DAY = date(2026, 11, 2)
ALWAYS = Window(date.min, date.max)


@pytest.fixture
def days(ledger_database):
    return ClosedDays(ledger_database)


@pytest.fixture
def reader(ledger_database):
    return ClosedDaysReader(ledger_database)


def day(offset):
    return DAY + timedelta(days=offset)


def users(offset, count, project="proj_1", seen=Activity.ACTIVE):
    return DayUsers(project, seen, day(offset).isoformat(), count)


def test_at_first_no_day_is_closed(days, reader):
    assert days.through() is None
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (None, [])


def test_a_closed_day_has_its_user_count(days, reader):
    days.close(day(1), [users(0, 5), users(1, 7), users(1, 2, seen=Activity.SIGNUP), users(1, 9, "proj_2")])
    assert days.through() == reader.through() == day(1)
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (
        day(1),
        [("proj_1", "2026-11-02", 5), ("proj_1", "2026-11-03", 7)],
    )
    assert reader.users(["proj_1"], Activity.SIGNUP, ALWAYS)[1] == [("proj_1", "2026-11-03", 2)]
    assert reader.users(["proj_1"], Activity.ACTIVE, Window(day(1), day(9)))[1] == [("proj_1", "2026-11-03", 7)]
    assert [row[0] for row in reader.users(["proj_2", "proj_1"], Activity.ACTIVE, ALWAYS)[1]] == ["proj_1"] * 2 + [
        "proj_2"
    ]


def test_days_are_closed_one_after_the_other(days, reader):
    days.close(day(0), [users(0, 5)])
    days.close(day(1), [])
    days.close(day(2), [users(2, 6)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (
        day(2),
        [("proj_1", "2026-11-02", 5), ("proj_1", "2026-11-04", 6)],
    )


def test_reopening_a_day_reopens_all_later_ones(days, reader):
    days.close(day(2), [users(0, 5), users(1, 6), users(2, 7)])
    days.reopen(day(1))
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (day(0), [("proj_1", "2026-11-02", 5)])
    days.close(day(1), [users(1, 8)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS)[1][1] == ("proj_1", "2026-11-03", 8)


def test_reopening_open_days_changes_nothing(days, reader):
    days.reopen(day(0))
    assert days.through() is None
    days.close(day(2), [users(2, 7)])
    days.reopen(day(3))
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (day(2), [("proj_1", "2026-11-04", 7)])


def test_a_failed_close_changes_nothing(days, reader):
    days.close(day(0), [users(0, 5)])
    with pytest.raises(Exception, match=r"(?i)unique"):
        days.close(day(1), [users(1, 6), users(1, 6)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (day(0), [("proj_1", "2026-11-02", 5)])


def test_a_count_that_began_before_another_process_reopened_days_is_not_stored(days, reader, ledger_database):
    days.close(day(0), [users(0, 5)])
    assert days.through() == day(0)
    ClosedDays(ledger_database).reopen(day(2))  # which is open: an import has stored rows there meanwhile
    days.close(day(3), [users(2, 6)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (day(0), [("proj_1", "2026-11-02", 5)])
    assert days.through() == day(0)
    days.close(day(3), [users(2, 7)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS)[1][-1] == ("proj_1", "2026-11-04", 7)


def test_a_count_that_began_before_any_day_was_closed_is_not_stored_either(days, reader, ledger_database):
    assert days.through() is None
    ClosedDays(ledger_database).reopen(day(0))  # An import has begun and finished meanwhile.
    days.close(day(1), [users(0, 5)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (None, [])
    assert days.through() is None
    days.close(day(1), [users(0, 6)])
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (day(1), [("proj_1", "2026-11-02", 6)])


def test_all_days_may_be_reopened(days, reader):
    days.close(day(1), [users(0, 5)])
    days.reopen(date(1970, 1, 1))
    assert days.through() is None
    assert reader.users(["proj_1"], Activity.ACTIVE, ALWAYS) == (None, [])
