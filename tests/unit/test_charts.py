import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.dashboard.charts.svg import HEIGHT, SPARK_HEIGHT, SPARK_WIDTH, WIDTH, curves, nice_top, spark

NUMBERS = st.lists(st.integers(0, 2**80), min_size=2, max_size=40)


def places(points):
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_the_highest_number_touches_the_top_and_nothing_lies_on_the_ground():
    drawn = curves([0, 50, 100], [])
    assert places(drawn.line) == [(0, HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, 0)]
    assert drawn.ticks == (100, 75, 50, 25, 0)
    assert drawn.before == ""


def test_both_periods_have_one_scale():
    drawn = curves([50, 50], [100, 0])
    assert places(drawn.before) == [(0, 0), (WIDTH, HEIGHT)]
    assert places(drawn.line)[0] == (0, HEIGHT / 2)


def test_one_day_is_a_level_line():
    assert places(curves([4], []).line) == [(0, 0), (WIDTH, 0)]


@pytest.mark.parametrize(("highest", "top"), [(0, 4), (3, 4), (5, 8), (100, 100), (101, 200), (810, 1000)])
def test_the_scale_ends_at_a_round_number(highest, top):
    assert nice_top(highest) == top


@given(st.integers(0, 2**90))
def test_every_number_fits_under_a_top_that_is_not_far_above(highest):
    top = nice_top(highest)
    assert highest <= top <= max(8, 3 * highest)
    assert top % 4 == 0


@given(NUMBERS, NUMBERS)
def test_nothing_is_drawn_outside(numbers, before):
    drawn = curves(numbers, before)
    for x, y in places(drawn.line) + places(drawn.before) + places(drawn.area):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for x, y in places(spark(numbers)):
        assert 0 <= x <= SPARK_WIDTH
        assert 0 <= y <= SPARK_HEIGHT
