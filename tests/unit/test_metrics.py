"""The table of metrics, and the format of their answers."""

import json
from datetime import date

import pytest

from mauve.core.problems import Code, Problem
from mauve.core.window import Window
from mauve.metrics.questions import ROWS_MAX, Question, body_of
from mauve.metrics.registry import METRICS, NAMES_MAX, metric_named

WINDOW = Window(date(1, 1, 1), date(2026, 11, 15))


def question(metric):
    return Question("proj_1", METRICS[metric], WINDOW, "view")


def test_there_are_eleven_metrics_in_the_order_of_the_contract():
    assert list(METRICS) == (
        [
            "mau",
            "dau",
            "signups",
            "signups_daily",
            "revenue",
            "mrr",
            "mrr_history",
            "volume",
            "event_names",
            "event_count",
            "event_series",
        ]
    )


@pytest.mark.parametrize("name", ["", "MAU", "mau ", "retention", "__class__"])
def test_no_other_metric_is_known(name):
    with pytest.raises(Problem) as caught:
        metric_named(name)
    assert caught.value.code is Code.NOT_FOUND
    assert "unknown metric" in caught.value.message


def test_three_are_raw_scans_two_need_a_name_and_one_has_no_window():
    assert [name for name, metric in METRICS.items() if metric.is_raw_scan] == [
        "event_names",
        "event_count",
        "event_series",
    ]
    assert [name for name, metric in METRICS.items() if metric.needs_name] == ["event_count", "event_series"]
    assert [name for name, metric in METRICS.items() if metric.is_windowless] == ["mrr"]


def test_an_answer_names_the_question_and_holds_the_rows():
    assert json.loads(body_of(question("revenue"), [("2026-11-15", "eur", 1999)]).bytes) == {
        "ok": True,
        "metric": "revenue",
        "project": "proj_1",
        "date_from": "0001-01-01",
        "date_to": "2026-11-15",
        "data": [{"day": "2026-11-15", "currency": "eur", "revenue": 1999}],
    }


def test_money_of_any_size_is_an_integer():
    large = 10**60 + 1
    assert b'"mrr":%d}' % large in body_of(question("mrr"), [("eur", large)]).bytes


def test_an_answer_without_rows_is_an_empty_list():
    assert json.loads(body_of(question("dau"), []).bytes)["data"] == []


def test_an_endless_answer_is_refused_without_being_built():
    def endless():
        while True:
            yield ("2026-11-15", 1)

    with pytest.raises(Problem) as caught:
        body_of(question("dau"), endless())
    assert caught.value.code is Code.MALFORMED
    assert str(ROWS_MAX) in caught.value.message


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_000, ROWS_MAX])
def test_an_answer_of_any_length_holds_every_row(count):
    body = body_of(question("dau"), ((str(number), number) for number in range(count)))
    assert json.loads(body.bytes)["data"] == [{"day": str(number), "dau": number} for number in range(count)]
    assert body.cut_at is None


@pytest.mark.parametrize(("names", "cut_at"), [(NAMES_MAX - 1, None), (NAMES_MAX, None), (NAMES_MAX + 1, NAMES_MAX)])
def test_names_beyond_the_limit_are_omitted_and_the_answer_says_so(names, cut_at):
    body = body_of(question("event_names"), ((str(number), 1) for number in range(names)))
    assert len(json.loads(body.bytes)["data"]) == min(names, NAMES_MAX)
    assert body.cut_at == cut_at
