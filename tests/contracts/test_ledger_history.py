"""What every ledger promises about the history of subscriptions."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger_entries import AMOUNT_MAX, a_version, mrr_of
from mauve.stores.ledger import Entry

projects = itertools.count(1)


def steps(reader, project="proj_1", before=10**18):
    """Return the steps of each subscription, in their order, as (at, currency, mrr)."""
    by_subscription = {}
    for key, group in itertools.groupby(reader.mrr_steps([project], before), lambda step: step.subscription):
        assert key not in by_subscription, "those of one subscription come together"
        by_subscription[key] = [(step.at, step.currency, step.mrr) for step in group]
    return list(by_subscription.values())


def test_every_version_is_a_step_and_only_an_active_one_has_mrr(writer, reader):
    versions = [a_version(1, mrr=5), a_version(2, status="past_due"), a_version(3, mrr=0, currency="usd")]
    writer.record([Entry(subscriptions=versions)])
    assert steps(reader) == [[(1, "eur", 5), (2, "eur", None), (3, "usd", 0)]]


def test_steps_come_by_moment_and_equal_ones_as_recorded(writer, reader):
    for version in [a_version(2, mrr=2), a_version(1, mrr=1), a_version(2, mrr=3), a_version(-5, mrr=4)]:
        writer.record([Entry(subscriptions=[version])])
    assert steps(reader) == [[(-5, "eur", 4), (1, "eur", 1), (2, "eur", 2), (2, "eur", 3)]]


def test_what_is_dated_later_is_left_out(writer, reader):
    writer.record([Entry(subscriptions=[a_version(at, mrr=at) for at in (1, 2, 3)])])
    assert steps(reader, before=3) == [[(1, "eur", 1), (2, "eur", 2)]]
    assert steps(reader, before=1) == []


def test_a_project_has_no_steps_of_another(writer, reader):
    writer.record([Entry(subscriptions=[a_version(), a_version(project="proj_2", id="sub_2", mrr=AMOUNT_MAX)])])
    assert steps(reader, "proj_2") == [[(1, "eur", AMOUNT_MAX)]]
    assert steps(reader, "proj_3") == []


def test_several_projects_come_one_after_the_other(writer, reader):
    versions = [a_version(at, project=f"proj_{at % 2}", id=f"sub_{at % 3}", mrr=at) for at in range(12)]
    writer.record([Entry(subscriptions=versions)])
    together = list(reader.mrr_steps(["proj_1", "proj_0", "proj_9"], 10**18))
    assert together == [step for project in ("proj_0", "proj_1") for step in reader.mrr_steps([project], 10**18)]
    assert len(together) == 12


def test_many_are_streamed(writer, reader):
    versions = [a_version(at, id=f"sub_{at % 3}", mrr=at) for at in range(3_000)]
    writer.record([Entry(subscriptions=versions)])
    assert [len(each) for each in steps(reader)] == [1_000] * 3
    one_only = reader.mrr_steps(["proj_1"], 10**18)
    next(one_only)
    one_only.close()  # Who stops in the middle leaves the ledger free.
    writer.record([Entry(subscriptions=[a_version(9_999)])])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3), st.sampled_from(["active", "canceled"])), max_size=9)
)
def test_the_last_step_of_each_subscription_is_its_current_row(writer, reader, recorded):
    project = f"proj_{next(projects)}"
    for place, (id_, at, status) in enumerate(recorded):
        writer.record([Entry(subscriptions=[a_version(at, project=project, id=id_, status=status, mrr=2**place)])])
    ends = [each[-1][2] for each in steps(reader, project)]
    expected = sum(mrr for mrr in ends if mrr is not None)
    assert mrr_of(reader, project) == ([("eur", expected)] if any(mrr is not None for mrr in ends) else [])
