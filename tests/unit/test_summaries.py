from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.window import Window
from mauve.dashboard.charts.figures import DRAWN_CURRENCIES_MAX, Figure, drawn_currencies, sum_figures
from mauve.metrics.summaries import (
    Change,
    amounts_of,
    average_tenths,
    by_currency,
    by_day,
    change,
    compared_days,
    mrr_on,
    rows_in,
    totals_by_currency,
    whole_days_before,
)

WINDOW = Window(date(2026, 11, 13), date(2026, 11, 15))
ROWS = [
    {"day": "2026-11-13", "currency": "eur", "revenue": 2**80},
    {"day": "2026-11-13", "currency": "jpy", "revenue": 7},
    {"day": "2026-11-15", "currency": "eur", "revenue": 1},
]


def test_days_that_the_api_omits_are_zero():
    assert by_day([{"day": "2026-11-14", "dau": 5}], "dau", WINDOW) == [0, 5, 0]


def test_money_is_added_exactly_and_by_currency():
    assert totals_by_currency(ROWS, "revenue") == {"eur": 2**80 + 1, "jpy": 7}


def test_mrr_is_a_level_of_one_day():
    rows = [{"day": f"2026-11-{day}", "currency": "eur", "mrr": day} for day in (13, 14)]
    assert (mrr_on(date(2026, 11, 14), rows), mrr_on(date(2026, 11, 15), rows)) == ({"eur": 14}, {})


@pytest.mark.parametrize(
    ("metric", "rows", "expected"),
    [
        ("dau", [{"day": "2026-11-13", "dau": 1}], {None: 3}),
        ("revenue", ROWS, {"eur": 2**80 + 1, "jpy": 7}),
        ("volume", [], {}),
        ("mrr", [{"currency": "eur", "mrr": 5}], {"eur": 5}),
        ("mrr_history", [{"day": f"2026-11-{day}", "currency": "eur", "mrr": day} for day in (14, 15)], {"eur": 15}),
        ("event_names", [{"name": "a", "count": 2}, {"name": "b", "count": 3}], {None: 5}),
        ("event_count", [{"name": "a", "count": 2}], {None: 2}),
        ("mau", [{"mau": 4}], {None: 4}),
    ],
)
def test_rows_amount_to_one_number_or_to_one_for_each_currency(metric, rows, expected):
    assert amounts_of(metric, rows, WINDOW) == expected


def test_whole_days_are_compared_with_the_same_days_before():
    today = date(2026, 11, 15)
    ended, before = Window(date(2026, 11, 9), date(2026, 11, 14)), Window(date(2026, 11, 2), date(2026, 11, 7))
    assert compared_days(Window(date(2026, 11, 9), today), today) == (ended, before)
    assert compared_days(ended, today) == (ended, ended.before)
    assert compared_days(Window(today, today), today) is None
    assert compared_days(Window(date(2026, 11, 14), date(2026, 12, 1)), today)[0].length == 1
    assert whole_days_before(today, 6) == ended


def test_rows_are_selected_by_day():
    assert rows_in(ROWS, Window(date(2026, 11, 14), date(2026, 11, 15))) == ROWS[2:]
    assert rows_in(ROWS, None) == []


def test_a_change_compares_the_whole_days_and_not_what_is_shown():
    assert Figure(now=310, before=200, whole=300).change == Change(50, "up")
    both = sum_figures([Figure(310, 200, whole=300), Figure(5, 100, whole=0)])
    assert (both.now, both.change) == (315, Change(0, "same"))


def test_the_number_of_drawn_currencies_is_limited():
    rows = [{"day": "2026-11-13", "currency": f"c{number:02}", "revenue": 1} for number in range(300)]
    rows += [{"day": "2026-11-14", "currency": "c99", "revenue": 1}]
    drawn = drawn_currencies(by_currency(rows))
    assert drawn == [*(f"c{number:02}" for number in range(DRAWN_CURRENCIES_MAX - 1)), "c99"]
    assert drawn_currencies(by_currency(ROWS), {}) == ["eur", "jpy"]


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (0, 0, Change(None, "same")),
        (5, 5, Change(0, "same")),
        (5, 0, Change(None, "up")),
        (0, 5, Change(-100, "down")),
        (3, 2, Change(50, "up")),
        (1, 3, Change(-67, "down")),
        (1001, 1000, Change(0, "up")),
        (2**90, 2**89, Change(100, "up")),
    ],
)
def test_a_change_is_in_whole_percent(now, before, expected):
    assert change(now, before) == expected


@given(st.lists(st.integers(0, 2**70), min_size=1))
def test_an_average_is_off_by_half_a_tenth_at_most(numbers):
    assert abs(Fraction(average_tenths(numbers), 10) - Fraction(sum(numbers), len(numbers))) <= Fraction(1, 20)


def test_figures_add_up_day_by_day_unless_the_days_of_one_are_unknown():
    whole, other, without = Figure(3, 1, [1, 2]), Figure(5, 2, [2, 3]), Figure(7, 4, [])
    assert sum_figures([whole, other]) == Figure(8, 3, [3, 5], whole=8)
    assert sum_figures([whole, without]) == Figure(10, 5, [], whole=10)
    assert sum_figures([]) == Figure(0, 0, [], whole=0)
    small = Figure(0, 0, [1, *[0] * 29, 500], averaged_days=30)
    assert sum_figures([small] * 3) == Figure(1, 0, [3, *[0] * 29, 1500], averaged_days=30, whole=0), "not today"
    assert sum_figures([Figure(1, 1, [1], "eur", is_level=True)] * 2).is_level


def test_only_an_average_that_is_not_zero_is_rounded_to_zero():
    days = [1, *[0] * 29]
    assert Figure(0, 0, days, averaged_days=30).is_rounded_to_zero
    assert not Figure(0, 0, [0, 0, 5], averaged_days=2).is_rounded_to_zero, "only today has users"
    assert not Figure(1, 0, days, averaged_days=30).is_rounded_to_zero
