"""`make bench` measures what it says."""

import pytest
from bench.__main__ import MEASURES, WHEN_ASKED_FOR, wanted_by


def test_without_a_word_everything_is_measured_but_what_takes_minutes():
    assert set(wanted_by([]).planes) == set(MEASURES) - set(WHEN_ASKED_FOR)


@pytest.mark.parametrize("plane", MEASURES)
def test_each_plane_can_be_asked_for_alone(plane):
    assert wanted_by([plane]).planes == [plane]


def test_a_plane_that_does_not_exist_is_refused_with_those_that_do(capsys):
    with pytest.raises(SystemExit):
        wanted_by(["everything"])
    assert "none of ingest, lasting" in capsys.readouterr().err


def test_the_full_form_reads_at_a_hundred_million_as_well():
    assert wanted_by(["reads", "--full"]).millions == [1, 20, 100]
