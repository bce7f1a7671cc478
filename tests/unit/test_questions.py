"""Questions parsed from query strings, and refusals."""

from datetime import date

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mauve.core.problems import Code, Problem
from mauve.core.window import Window, halves_of, today_at
from mauve.metrics.questions import Question, only, question_from
from mauve.metrics.registry import METRICS
from mauve.web.parameters import parameters_from

TODAY = date(2026, 11, 15)


def asked(metric, query="", today=TODAY):
    return question_from(METRICS[metric], "proj_1", parameters_from(query.encode()), today)


def refusal(metric, query):
    with pytest.raises(Problem) as caught:
        asked(metric, query)
    assert caught.value.code is Code.MALFORMED
    return caught.value.message


def test_the_default_window_is_today_and_the_29_days_before():
    assert asked("dau").window == Window(date(2026, 10, 17), TODAY)


def test_either_end_may_be_given_alone():
    assert asked("dau", "date_from=2026-11-01").window == Window(date(2026, 11, 1), TODAY)
    assert asked("dau", "date_to=2026-10-20").window == Window(date(2026, 10, 17), date(2026, 10, 20))


def test_a_window_may_be_one_day_everything_or_in_the_future():
    assert asked("dau", "date_from=2026-11-15&date_to=2026-11-15").window == Window(TODAY, TODAY)
    assert asked("dau", "date_from=0001-01-01&date_to=9999-12-31").window == Window(date.min, date.max)
    assert asked("dau", "date_from=2030-01-01&date_to=2030-01-02").window.first.year == 2030


@pytest.mark.parametrize(
    "query",
    [
        "date_from=2026-11-02&date_to=2026-11-01",
        "date_from=2026-11-16",  # after today, which is the default end
        "date_to=2026-10-16",  # before the default beginning
    ],
)
def test_a_window_that_ends_before_it_begins_is_refused(query):
    assert "ends before it begins" in refusal("dau", query)


@pytest.mark.parametrize("name", ["date_from", "date_to"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "today",
        "2026-11-31",
        "2026-02-29",
        "0000-01-01",
        "2026-1-01",
        "20261101",
        "2026-W46-1",
        "2026-11-01T00:00:00Z",
        "2026-11-01%20",
        "%2B2026-11-01",
        "2026-11-01%00",
        "٢٠٢٦-11-01",
        "10000-01-01",
        "-2026-11-01",
    ],
)
def test_an_invalid_date_is_refused(name, text):
    assert name in refusal("dau", f"{name}={text}")


def test_a_leap_day_is_accepted():
    assert asked("dau", "date_from=2024-02-29&date_to=2024-02-29").window.first == date(2024, 2, 29)


@pytest.mark.parametrize("metric", ["event_count", "event_series"])
@pytest.mark.parametrize("query", ["", "name=", "Name=view"])
def test_a_name_is_required_where_one_event_is_counted(metric, query):
    assert "name is required" in refusal(metric, query)


def test_a_name_longer_than_the_longest_event_name_is_refused():
    assert asked("event_count", "name=" + "x" * 128).name == "x" * 128
    assert "128" in refusal("event_count", "name=" + "x" * 129)


def test_dates_are_refused_before_the_name():
    assert "date_to" in refusal("event_count", "date_to=never")


def test_a_name_may_be_any_text():
    assert asked("event_count", "name=a%2Fb%00%26+%E2%82%AC").name == "a/b\0& €"


@pytest.mark.parametrize("query", ["date_from=2026-11-01&date_from=2026-11-01", "date_to=2026-11-15&date_to="])
def test_a_repeated_parameter_is_refused(query):
    assert "2 times" in refusal("dau", query)
    assert "2 times" in refusal("event_count", "name=a&name=a")


def test_unknown_parameters_are_ignored():
    assert asked("dau", "name=a&name=b&color=red&project=x") == asked("dau")
    assert asked("dau", "name=" + "x" * 999).key == asked("dau").key


@pytest.mark.parametrize("query", ["", "date_from=garbage", "date_from=2030-01-01", "date_from=1&date_from=2"])
def test_the_current_mrr_ignores_the_start_of_the_window(query):
    assert asked("mrr", query).window == Window(TODAY, TODAY)


def test_the_current_mrr_is_for_today_whatever_window_is_given():
    assert asked("mrr", "date_to=2020-01-01").window == Window(TODAY, TODAY)
    assert "date_to" in refusal("mrr", "date_to=garbage")


def test_equal_questions_have_equal_keys_and_different_ones_do_not():
    keys = [
        Question(project, METRICS[metric], Window(first, last), name).key
        for project in ("proj_1", "proj_2")
        for metric in ("event_count", "event_series")
        for first in (date(2026, 1, 1), date(2026, 1, 2))
        for last in (date(2026, 1, 2), date(2026, 1, 3))
        for name in ("a", "b", "a/b", "a/")
    ]
    assert len(set(keys)) == len(keys)
    assert asked("event_count", "name=a%20b&date_to=2026-11-15").key == asked("event_count", "name=a+b").key


def test_the_default_window_of_another_day_has_another_key():
    before, after = (asked("mau", today=day).key for day in (TODAY, date(2026, 11, 16)))
    assert before != after


def test_a_day_begins_at_midnight_utc():
    midnight = 1_794_700_800_000
    assert (today_at(midnight - 1), today_at(midnight)) == (date(2026, 11, 14), TODAY)


class TestTheQueryString:
    def test_every_value_is_kept_in_order(self):
        assert dict(parameters_from(b"a=1&b=&a=2&c")) == {"a": ["1", "2"], "b": [""], "c": [""]}

    def test_raw_and_escaped_utf_8_are_the_same(self):
        assert parameters_from("a=größe".encode()) == parameters_from(b"a=gr%C3%B6%C3%9Fe")

    @pytest.mark.parametrize("query", [b"a=%FF", b"a=\xff", b"a=%ED%A0%80", b"&".join([b"a=1"] * 101)])
    def test_invalid_utf_8_and_too_many_parameters_are_refused(self, query):
        with pytest.raises(Problem) as caught:
            parameters_from(query)
        assert caught.value.code is Code.MALFORMED

    def test_a_long_query_is_parsed_like_a_short_one(self):
        assert only(parameters_from(b"x=1&name=" + b"y" * 5_000), "x") == "1"

    def test_a_parameter_that_is_absent_is_none(self):
        assert only(parameters_from(b""), "x") is None


@given(st.dates(), st.dates())
def test_the_halves_of_a_window_cover_it_without_overlap(one, other):
    assume(one != other)
    window = Window(min(one, other), max(one, other))
    earlier, later = halves_of(window)
    assert (earlier.first, later.last) == window
    assert earlier.first <= earlier.last
    assert (later.first - earlier.last).days == 1
    assert later.first <= later.last
