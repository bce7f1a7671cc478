"""What every read meter promises.

Proves: clock.
"""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.window import period_ends_at, period_of
from mauve.stores.limits.read_meter import ReadCost, ReadLimits, Throttle, Throttled, Usage

NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * 1000
HOUR = 3_600_000
DAY = 24 * HOUR
READ, QUERY, SCAN = ReadCost(), ReadCost(queries=1), ReadCost(queries=1, raw_scans=1)
PLENTY = ReadLimits(1000, 1000, 1000)


@pytest.fixture
def meter(open_meter):
    return open_meter()


def taken(meter, limits=PLENTY, uses=READ, now=NOW, org="org_1", times=1):
    """Return how many of the reads were admitted."""
    return sum(meter.take(org, uses, limits, now) is None for _ in range(times))


class TestMinute:
    def test_a_minute_allows_as_many_reads_as_the_limit(self, meter):
        assert taken(meter, ReadLimits(3, 0, 0), times=10) == 3

    def test_the_window_slides(self, meter):
        limits = ReadLimits(2, 0, 0)
        assert taken(meter, limits, now=NOW) == 1
        assert taken(meter, limits, now=NOW + 30_000) == 1
        assert taken(meter, limits, now=NOW + 59_999) == 0
        assert taken(meter, limits, now=NOW + 60_000, times=2) == 1
        assert taken(meter, limits, now=NOW + 89_999) == 0
        assert taken(meter, limits, now=NOW + 90_000) == 1

    def test_a_refusal_says_when_the_oldest_read_leaves_the_window(self, meter):
        limits = ReadLimits(2, 0, 0)
        taken(meter, limits, now=NOW)
        taken(meter, limits, now=NOW + 10_000)
        for now in (NOW + 20_000, NOW + 59_999):
            assert meter.take("org_1", READ, limits, now) == Throttled(Throttle.RATE_LIMIT, NOW + 60_000, now)
        assert meter.take("org_1", READ, limits, NOW + 60_000) is None
        assert meter.take("org_1", READ, limits, NOW + 60_000).lifts_at == NOW + 70_000

    def test_a_client_that_waits_as_long_as_asked_is_admitted(self, meter):
        limits = ReadLimits(1, 0, 0)
        assert taken(meter, limits) == 1
        assert taken(meter, limits, now=meter.take("org_1", READ, limits, NOW + 1).lifts_at) == 1

    def test_refused_reads_do_not_prolong_the_wait(self, meter):
        limits = ReadLimits(1, 0, 0)
        taken(meter, limits)
        for second in range(60):
            assert taken(meter, limits, now=NOW + second * 1000) == 0
        assert taken(meter, limits, now=NOW + 60_000) == 1

    def test_organizations_do_not_share_a_limit(self, meter):
        assert taken(meter, ReadLimits(1, 0, 0), org="org_1", times=2) == 1
        assert taken(meter, ReadLimits(1, 0, 0), org="org_2", times=2) == 1

    def test_a_new_limit_applies_from_the_next_read_on(self, meter):
        assert taken(meter, ReadLimits(2, 0, 0), times=3) == 2
        assert taken(meter, ReadLimits(5, 0, 0), times=9) == 3
        assert taken(meter, ReadLimits(1, 0, 0)) == 0

    def test_a_limit_of_zero_refuses_every_read_for_a_minute(self, meter):
        assert meter.take("org_1", READ, ReadLimits(0, 9, 9), NOW) == Throttled(Throttle.RATE_LIMIT, NOW + 60_000, NOW)


class TestAllowances:
    def test_queries_are_spent_until_the_billing_period_ends(self, meter):
        limits = ReadLimits(1000, 2, 1000)
        ends_at = period_ends_at(NOW)
        assert taken(meter, limits, QUERY, times=5) == 2
        assert meter.take("org_1", QUERY, limits, NOW + DAY) == Throttled(Throttle.QUERIES, ends_at, NOW + DAY)
        assert taken(meter, limits, QUERY, now=ends_at - 1) == 0
        assert taken(meter, limits, QUERY, now=ends_at, times=5) == 2

    def test_a_raw_scan_spends_a_query_and_a_raw_scan(self, meter):
        limits = ReadLimits(1000, 5, 2)
        assert taken(meter, limits, SCAN, times=5) == 2
        assert meter.take("org_1", SCAN, limits, NOW) == Throttled(Throttle.RAW_SCANS, period_ends_at(NOW), NOW)
        assert taken(meter, limits, QUERY, times=9) == 3
        assert meter.take("org_1", SCAN, limits, NOW).throttle is Throttle.QUERIES

    def test_reads_without_allowance_continue_when_all_is_spent(self, meter):
        limits = ReadLimits(1000, 0, 0)
        assert taken(meter, limits, QUERY) == taken(meter, limits, SCAN) == 0
        assert taken(meter, limits, READ, times=7) == 7

    def test_the_rate_limit_refuses_first(self, meter):
        limits = ReadLimits(0, 0, 0)
        assert meter.take("org_1", SCAN, limits, NOW).throttle is Throttle.RATE_LIMIT

    def test_a_refused_read_spends_nothing(self, meter):
        assert taken(meter, ReadLimits(0, 1, 1), SCAN, times=9) == 0
        assert taken(meter, ReadLimits(2, 0, 1), SCAN, times=9) == 0
        assert taken(meter, ReadLimits(2, 1, 0), SCAN, times=9) == 0
        assert taken(meter, ReadLimits(2, 2, 1), SCAN) == 1
        assert taken(meter, ReadLimits(2, 2, 1), QUERY) == 1
        assert taken(meter, ReadLimits(2, 9, 9), READ) == 0

    def test_usage_is_reported_without_spending(self, meter):
        for uses in (READ, QUERY, SCAN):
            meter.take("org_1", uses, PLENTY, NOW)
        for _ in range(2):
            assert meter.usage("org_1", NOW) == Usage(reads=3, oldest_read_at=NOW, queries=2, raw_scans=1)
        assert meter.usage("org_1", NOW + 60_000) == Usage(reads=0, oldest_read_at=None, queries=2, raw_scans=1)
        assert meter.usage("org_2", NOW) == Usage(0, None, 0, 0)


class TestClocks:
    def test_a_clock_set_back_locks_no_organization_out(self, meter):
        limits = ReadLimits(2, 1000, 1000)
        assert taken(meter, limits, times=2) == 2
        assert taken(meter, limits, now=NOW - 2 * HOUR, times=3) == 2
        assert meter.take("org_1", READ, limits, NOW - 2 * HOUR).lifts_at == NOW - 2 * HOUR + 60_000

    def test_old_reads_expire_when_the_clock_catches_up(self, meter):
        limits = ReadLimits(2, 1000, 1000)
        taken(meter, limits, times=2)
        taken(meter, limits, now=NOW - 2 * HOUR)
        assert taken(meter, limits, times=2) == 2

    def test_a_clock_set_forward_and_back_locks_no_organization_out(self, meter):
        limits = ReadLimits(2, 1000, 1000)
        for now in (NOW, NOW + 3 * DAY, NOW):
            assert taken(meter, limits, now=now, times=3) == 2

    def test_a_jittering_clock_loses_no_counts(self, meter):
        limits = ReadLimits(2, 1000, 1000)
        assert taken(meter, limits, now=NOW, times=2) == 2
        assert taken(meter, limits, now=NOW - CLOCK_SLACK_MS) == 0

    def test_a_billing_period_that_returns_continues_where_it_was(self, meter):
        limits = ReadLimits(1000, 3, 1000)
        end_of_month = period_ends_at(NOW) - DAY
        assert taken(meter, limits, QUERY, now=end_of_month, times=2) == 2
        assert taken(meter, limits, QUERY, now=end_of_month + 3 * DAY, times=5) == 3
        assert taken(meter, limits, QUERY, now=end_of_month, times=5) == 1


class TestProcesses:
    def test_processes_count_together(self, open_meter):
        first, second = open_meter(), open_meter()
        limits = ReadLimits(3, 1000, 1000)
        assert taken(first, limits) + taken(second, limits) == 2
        assert taken(first, limits) + taken(second, limits) == 1

    def test_concurrent_reads_never_exceed_the_limit(self, open_meter):
        limits = ReadLimits(50, 40, 30)

        def passed_by(meter):
            return Counter(uses for uses in (SCAN, QUERY, READ) * 20 if taken(meter, limits, uses))

        with ThreadPoolExecutor(4) as threads:
            passed = sum(threads.map(passed_by, [open_meter() for _ in range(4)]), Counter())
        assert sum(passed.values()) == 50
        assert passed[QUERY] + passed[SCAN] <= 40
        assert passed[SCAN] <= 30

    def test_spent_allowances_survive_reopening(self, open_meter):
        limits = ReadLimits(5, 4, 3)
        meter = open_meter()
        assert taken(meter, limits, SCAN, times=2) == 2
        meter.close()
        assert taken(open_meter(), limits, SCAN, times=5) == 1
        assert taken(open_meter(), limits, QUERY, times=5) == 1
        assert taken(open_meter(), limits, READ, times=5) == 1


class Model:
    """A simple model: a list of times for each organization, and the cost of each period."""

    def __init__(self):
        self.moments = {}
        self.spent = Counter()

    def take(self, org, uses, limits, now):
        window = [at for at in self.moments.get(org, []) if now - 60_000 < at <= now + CLOCK_SLACK_MS]
        self.moments[org] = window
        period = (org, period_of(now))
        if len(window) >= limits.reads_per_minute:
            return Throttled(Throttle.RATE_LIMIT, (min(window) if window else now) + 60_000, now)
        if uses.queries and self.spent[period, "queries"] >= limits.queries:
            return Throttled(Throttle.QUERIES, period_ends_at(now), now)
        if uses.raw_scans and self.spent[period, "raw_scans"] >= limits.raw_scans:
            return Throttled(Throttle.RAW_SCANS, period_ends_at(now), now)
        window.append(now)
        self.spent[period, "queries"] += uses.queries
        self.spent[period, "raw_scans"] += uses.raw_scans
        return None


USES = st.sampled_from([READ, QUERY, SCAN])
LIMITS = st.builds(ReadLimits, st.integers(0, 6), st.integers(0, 8), st.integers(0, 5))
NAMES = map(str, itertools.count())
QUICK = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@QUICK
@given(
    limits=LIMITS,
    steps=st.lists(st.tuples(st.sampled_from(["a", "b"]), USES, st.integers(0, 40_000)), max_size=40),
)
def test_the_sliding_minute_matches_a_list_of_times(open_meter, limits, steps):
    meter, model, now = open_meter(next(NAMES)), Model(), NOW
    for org, uses, pause in steps:
        now += pause
        assert meter.take(org, uses, limits, now) == model.take(org, uses, limits, now)


@QUICK
@given(
    limits=LIMITS,
    steps=st.lists(
        st.tuples(USES, st.integers(-10_000, 40_000) | st.sampled_from([-2 * HOUR, 3 * DAY, 16 * DAY])), max_size=40
    ),
)
def test_the_sliding_minute_matches_the_model_when_the_clock_is_set(open_meter, limits, steps):
    meter, model, now = open_meter(next(NAMES)), Model(), NOW
    for uses, jump in steps:
        now += jump
        assert meter.take("a", uses, limits, now) == model.take("a", uses, limits, now)


@QUICK
@given(limits=LIMITS, jumps=st.lists(st.integers(-100 * DAY, 100 * DAY), min_size=1, max_size=20))
def test_no_wait_is_much_longer_than_a_minute_whatever_the_clock_does(open_meter, limits, jumps):
    meter, now = open_meter(next(NAMES)), NOW
    for jump in jumps:
        now += jump
        refusal = meter.take("a", READ, limits, now)
        if refusal is not None:
            assert now < refusal.lifts_at <= now + 60_000 + CLOCK_SLACK_MS
