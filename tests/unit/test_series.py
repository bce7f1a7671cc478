from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.window import Window
from mauve.dashboard.charts.figures import Figure, sum_figures
from mauve.dashboard.charts.series import (
    DRAWN_CURRENCIES_MAX,
    Change,
    average_tenths,
    by_currency,
    by_day,
    change,
    drawn_currencies,
    last_day_amounts,
    rows_in,
    totals_by_currency,
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
    assert totals_by_currency(by_currency(ROWS), "revenue") == {"eur": 2**80 + 1, "jpy": 7}
    assert last_day_amounts(ROWS, "revenue", WINDOW) == {"eur": 1}


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
