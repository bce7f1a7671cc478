import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.dashboard.charts.svg import HEIGHT, SPARK_HEIGHT, SPARK_WIDTH, WIDTH, axis_max, plot, spark

NUMBERS = st.lists(st.integers(0, 2**80), min_size=2, max_size=40)


def coordinates(points):
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_the_highest_number_is_at_the_top_and_zero_at_the_bottom():
    drawn = plot([0, 50, 100], [])
    assert coordinates(drawn.line) == [(0, HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, 0)]
    assert drawn.ticks == (100, 75, 50, 25, 0)
    assert drawn.before == ""


def test_both_periods_share_one_scale():
    drawn = plot([50, 50], [100, 0])
    assert coordinates(drawn.before) == [(0, 0), (WIDTH, HEIGHT)]
    assert coordinates(drawn.line)[0] == (0, HEIGHT / 2)


def test_a_single_day_is_a_horizontal_line():
    assert coordinates(plot([4], []).line) == [(0, 0), (WIDTH, 0)]


@pytest.mark.parametrize(("highest", "top"), [(0, 4), (3, 4), (5, 8), (100, 100), (101, 200), (810, 1000)])
def test_the_scale_ends_at_a_round_number(highest, top):
    assert axis_max(highest) == top


@given(st.integers(0, 2**90))
def test_every_number_fits_below_an_axis_maximum_close_to_it(highest):
    top = axis_max(highest)
    assert highest <= top <= max(8, 3 * highest)
    assert top % 4 == 0


@given(NUMBERS, NUMBERS)
def test_nothing_is_drawn_outside_the_canvas(numbers, before):
    drawn = plot(numbers, before)
    for x, y in coordinates(drawn.line) + coordinates(drawn.before) + coordinates(drawn.area):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for x, y in coordinates(spark(numbers)):
        assert 0 <= x <= SPARK_WIDTH
        assert 0 <= y <= SPARK_HEIGHT
