"""`make bench` runs the requested benchmarks and fails on a missed floor."""

import json
import re
import sys

import pytest
from bench import __main__ as bench_command
from bench.__main__ import MEASURES, ONLY_ON_REQUEST, parse_options
from bench.report import Figure, at_least, at_most, render


def test_without_arguments_all_but_the_slowest_benchmark_runs():
    assert set(parse_options([]).planes) == set(MEASURES) - set(ONLY_ON_REQUEST)


@pytest.mark.parametrize("plane", MEASURES)
def test_each_benchmark_can_run_alone(plane):
    assert parse_options([plane]).planes == [plane]


def test_an_unknown_benchmark_is_refused_with_a_list_of_all(capsys):
    with pytest.raises(SystemExit):
        parse_options(["everything"])
    assert "not one of ingest, loading, recovery" in capsys.readouterr().err


def test_full_adds_reads_at_a_hundred_million_events():
    assert parse_options(["reads", "--full"]).millions == [1, 20, 100]


def test_a_missed_floor_is_a_regression_and_a_missed_aim_is_not():
    aimed = Figure("batches", "616k", 0.7, floor=at_least(0.7, 0.65, "of validation"), aim=at_least(0.7, 0.75))
    assert not aimed.is_regression
    assert Figure("batches", "500k", 0.6, floor=at_least(0.6, 0.65), aim=at_least(0.6, 0.75)).is_regression
    assert Figure("memory", "151 MB", floor=at_most(151, 150, "MB")).is_regression
    assert not Figure("memory", "150 MB", floor=at_most(150, 150, "MB")).is_regression
    assert not Figure("start-up", "3 s").is_regression


def test_the_table_shows_the_floor_and_the_aim_of_each_figure():
    figures = [
        Figure("batches", "616k", 0.7, floor=at_least(0.7, 0.65, "of validation"), aim=at_least(0.7, 0.75)),
        Figure("sustained", "140k", floor=at_least(140_000, 150_000, "events/s")),
        Figure("start-up", "3 s"),
    ]
    lines = [re.split(r"\s{2,}", line) for line in render(figures).splitlines()]
    assert lines == [
        ["NAME", "FIGURE", "RATIO", "FLOOR", "HELD", "AIM", "REACHED"],
        ["batches", "616k", "0.700", ">= 0.65 of validation", "yes", ">= 0.75", "not yet"],
        ["sustained", "140k", "-", ">= 150,000 events/s", "NO", "-", "-"],
        ["start-up", "3 s", "-", "-", "-", "-", "-"],
    ]


@pytest.mark.parametrize(("figure", "exit_code"), [(0.6, 1), (0.7, 0)])
def test_only_a_missed_floor_fails_the_run(monkeypatch, tmp_path, capsys, figure, exit_code):
    def measure():
        yield Figure("batches", "x", figure, floor=at_least(figure, 0.65), aim=at_least(figure, 0.75))

    monkeypatch.setattr(bench_command, "RESULTS", tmp_path / "results" / "latest.json")
    monkeypatch.setitem(MEASURES, "control", measure)
    monkeypatch.setattr(sys, "argv", ["bench", "control"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        bench_command.main()
    assert ended.value.code == exit_code
    assert json.loads((tmp_path / "results" / "latest.json").read_text())[0]["aim"]["met"] is False
    assert ">= 0.75" in capsys.readouterr().out
