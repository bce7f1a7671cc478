import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.dashboard.charts.chart import HEIGHT, SPARK_HEIGHT, SPARK_WIDTH, WIDTH, axis_ticks, plot, spark
from mauve.dashboard.text import short_money

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


def test_today_is_drawn_apart_from_the_whole_days():
    drawn = plot([100, 50, 0], [], has_today=True)
    assert coordinates(drawn.line) == [(0, 0), (WIDTH / 2, HEIGHT / 2)]
    assert coordinates(drawn.today) == [(WIDTH / 2, HEIGHT / 2), (WIDTH, HEIGHT)]
    assert coordinates(drawn.area)[-2:] == [(WIDTH / 2, HEIGHT), (0, HEIGHT)], "the area ends with the last whole day"
    small = spark([4, 4, 0], has_today=True)
    assert [len(coordinates(points)) for points in small] == [2, 2]


def test_today_alone_is_drawn_as_unfinished():
    drawn = plot([4], [], has_today=True)
    assert (drawn.line, drawn.dot, drawn.area) == ("", "", "")
    assert coordinates(drawn.today) == [(0, 0), (WIDTH, 0)]


def test_the_only_whole_day_before_today_is_a_dot():
    drawn = plot([4, 2], [], has_today=True)
    assert (drawn.line, coordinates(drawn.dot)) == ("", [(0, 0), (0, 0)])
    assert coordinates(drawn.today) == [(0, 0), (WIDTH, HEIGHT / 2)]
    assert plot([4, 2, 1], [], has_today=True).dot == plot([4, 2], []).dot == ""


def test_a_chart_without_today_has_only_whole_days():
    assert plot([1, 2], []).today == spark([1, 2]).today == ""


@pytest.mark.parametrize(
    ("highest", "top", "step"),
    [
        (0, 3, 1),
        (1, 3, 1),
        (2, 3, 1),
        (3, 3, 1),
        (4, 4, 1),
        (5, 5, 1),
        (7, 8, 2),
        (11, 15, 5),
        (41, 50, 10),
        (99, 100, 25),
        (100, 100, 25),
        (101, 125, 25),
        (810, 1000, 250),
        (12_345, 12_500, 2_500),
        (10**30 + 1, 125 * 10**28, 25 * 10**28),
    ],
)
def test_the_axis_ends_at_a_round_number_near_the_highest(highest, top, step):
    ticks = axis_ticks(highest)
    assert ticks == tuple(range(top, -1, -step))


@given(st.integers(0, 2**90))
def test_an_axis_has_few_equal_whole_steps_and_little_room_above_the_highest(highest):
    top, *_ = ticks = axis_ticks(highest)
    assert highest <= top <= max(3, highest * 3 // 2)
    assert 4 <= len(ticks) <= 6
    step = ticks[-2]
    assert list(ticks) == [step * number for number in range(len(ticks) - 1, -1, -1)]
    assert str(step).rstrip("0") in {"1", "2", "25", "5"}


@pytest.mark.parametrize(
    ("highest", "currency", "labels"),
    [
        (3, "jpy", "3 2 1 0"),
        (41, "jpy", "50 40 30 20 10 0"),
        (1_100, "jpy", "1.25k 1k 750 500 250 0"),
        (41_00, "eur", "50 40 30 20 10 0"),
        (5_50, "eur", "6 4 2 0"),
        (7_50, "eur", "7.50 5 2.50 0"),
        (99, "eur", "1 0.75 0.50 0.25 0"),
        (1, "eur", "0.03 0.02 0.01 0"),
        (123_45, "eur", "125 100 75 50 25 0"),
        (1_234_567_89, "eur", "1.25M 1M 750k 500k 250k 0"),
        (41_000, "kwd", "50 40 30 20 10 0"),
        (7_500, "kwd", "7.500 5 2.500 0"),
        (99, "kwd", "0.100 0.075 0.050 0.025 0"),
    ],
)
def test_labels_of_money_are_exact_and_different(highest, currency, labels):
    assert " ".join(short_money(tick, currency) for tick in axis_ticks(highest)) == labels


@given(st.integers(0, 2**90), st.sampled_from(["jpy", "eur", "kwd"]))
def test_no_two_grid_lines_have_the_same_label(highest, currency):
    ticks = axis_ticks(highest)
    assert len({short_money(tick, currency) for tick in ticks}) == len(ticks)


def test_grid_lines_are_drawn_at_their_values():
    assert plot([0, 41], []).rules == ("0", "40", "80", "120", "160", "200")
    assert plot([0, 3], []).rules == ("0", "66.7", "133.3", "200")


@given(NUMBERS, NUMBERS, st.booleans())
def test_nothing_is_drawn_outside_the_canvas(numbers, before, has_today):
    drawn = plot(numbers, before, has_today=has_today)
    for x, y in coordinates(f"{drawn.line} {drawn.dot} {drawn.before} {drawn.area} {drawn.today}"):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for x, y in coordinates(" ".join(spark(numbers, has_today=has_today))):
        assert 0 <= x <= SPARK_WIDTH
        assert 0 <= y <= SPARK_HEIGHT
