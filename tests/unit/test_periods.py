from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.problems import Problem
from mauve.core.window import Window
from mauve.dashboard.charts.periods import DAYS_MAX, period_from

TODAY = date(2026, 11, 15)


def period_of(**query):
    return period_from({name.rstrip("_"): [value] for name, value in query.items()}, TODAY)


def test_the_default_is_the_window_of_the_api():
    assert period_of() == period_of(days="30")
    assert period_of().window == Window(date(2026, 10, 17), TODAY)


@pytest.mark.parametrize(("days", "first"), [("7", date(2026, 11, 9)), ("90", date(2026, 8, 18))])
def test_a_number_of_days_ends_today(days, first):
    assert period_of(days=days).window == Window(first, TODAY)


def test_a_custom_range_is_accepted():
    period = period_of(from_="2026-02-27", to="2026-03-01")
    assert period.window.days == [date(2026, 2, 27), date(2026, 2, 28), date(2026, 3, 1)]
    assert period.before == Window(date(2026, 2, 24), date(2026, 2, 26))
    assert period.address == {"from": "2026-02-27", "to": "2026-03-01"}


def test_whole_days_leave_out_today_and_its_counterpart():
    period = period_of(days="7")
    assert (period.has_today, period.whole) == (True, Window(date(2026, 11, 9), date(2026, 11, 14)))
    assert period.whole_before == Window(date(2026, 11, 2), date(2026, 11, 7))


def test_a_past_period_has_only_whole_days():
    period = period_of(from_="2026-11-08", to="2026-11-14")
    assert (period.has_today, period.whole, period.whole_before) == (False, period.window, period.before)


def test_today_alone_has_no_whole_day():
    period = period_of(from_="2026-11-15", to="2026-11-15")
    assert (period.whole, period.whole_before) == (None, None)


@pytest.mark.parametrize(("days", "name"), [("7", "Active users"), ("30", "MAU"), ("90", "Active users")])
def test_only_the_users_of_about_a_month_are_called_monthly(days, name):
    assert period_of(days=days).users_title == name


@pytest.mark.parametrize(
    "query",
    [
        {"days": "31"},
        {"days": "x"},
        {"from_": "2026-01-02", "to": "2026-01-01"},
        {"from_": "2026-01-01"},
        {"to": "2026-01-01"},
        {"from_": "2026-01-01", "to": "2026-11-16"},
        {"from_": "0001-01-01", "to": "0001-01-02"},
        {"from_": "2020-01-01", "to": "2026-01-02"},
        {"from_": "2026-02-30", "to": "2026-03-02"},
    ],
)
def test_any_other_query_is_refused(query):
    with pytest.raises(Problem):
        period_of(**query)


@given(st.dates(date(1975, 1, 1), TODAY), st.integers(0, DAYS_MAX - 1))
def test_the_previous_period_is_as_long_and_ends_where_this_one_starts(last, length):
    first = date.fromordinal(max(date(1975, 1, 1).toordinal(), last.toordinal() - length))
    period = period_of(from_=first.isoformat(), to=last.isoformat())
    assert period.before.length == period.window.length == len(period.window.days)
    assert period.before.last.toordinal() + 1 == period.window.first.toordinal()
    assert period_from({name: [value] for name, value in period.address.items()}, TODAY) == period
