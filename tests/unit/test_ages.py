"""Which figures of a page are older than the others."""

from hypothesis import given
from hypothesis import strategies as st

from mauve.dashboard.ages import SAME_AGE_MS, Ages, Older, ages_of, older_parts, row_read_at

NOW = 1_800_000_000_000


def test_figures_read_together_have_one_moment_the_earliest():
    assert ages_of({"mau": NOW, "dau": NOW - SAME_AGE_MS}) == Ages(NOW - SAME_AGE_MS, {})


def test_a_figure_that_is_older_is_named_with_its_own_moment():
    older = NOW - SAME_AGE_MS - 1
    assert ages_of({"mau": older, "dau": NOW}) == Ages(NOW, {"mau": older})


def test_a_row_read_at_once_has_one_moment_and_else_each_figure_its_own():
    older = NOW - SAME_AGE_MS - 1
    assert row_read_at("app", {"mau": NOW, "dau": NOW - 1}) == {"app": NOW - 1}
    assert row_read_at("app", {"mau": NOW, "dau": older}) == {"app/mau": NOW, "app/dau": older}
    assert row_read_at("app", {}) == {}


def test_a_page_without_figures_has_no_age():
    assert ages_of({}) == Ages(None, {})


@given(st.dictionaries(st.text(max_size=3), st.integers(NOW - 10**9, NOW), min_size=1))
def test_every_figure_is_dated_exactly_or_within_the_tolerance(read_at):
    ages = ages_of(read_at)
    for key, at in read_at.items():
        assert ages.older.get(key, at) == at
        if key not in ages.older:
            assert 0 <= at - ages.as_of <= SAME_AGE_MS


def test_older_parts_of_one_age_are_named_together():
    ages = Ages(NOW, {"a": NOW - 60_000, "b": NOW - 240_000, "c": NOW - 60_000 - SAME_AGE_MS, "tile": NOW - 60_000})
    names = {"a": "users", "b": "signups", "c": "revenue", "new": "MRR"}
    together = Older(["users", "revenue"], NOW - 60_000 - SAME_AGE_MS)
    assert older_parts(ages, names) == [together, Older(["signups"], NOW - 240_000)]


@given(st.dictionaries(st.text(max_size=3), st.integers(NOW - 100_000, NOW), min_size=1))
def test_every_older_part_is_named_once_with_an_age_that_is_true_of_it(read_at):
    ages = ages_of(read_at)
    groups = older_parts(ages, {key: key for key in read_at})
    assert sorted(name for group in groups for name in group.names) == sorted(ages.older)
    for group in groups:
        assert all(0 <= read_at[name] - group.at <= SAME_AGE_MS for name in group.names)
