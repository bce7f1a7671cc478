"""Whether loading is behind.

Proves: lag.
"""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from mauve.load.lag import SLACK_S, LoadLag
from mauve.load.runner import LoadMetrics, LoadRunner
from support.clocks import ManualClock

FLUSH_S = 2.0
LATE_US = int((FLUSH_S + SLACK_S) * 1_000_000)


@pytest.fixture
def clock():
    return ManualClock()


def lag_of(clock, oldest_waiting_at, *, is_catching_up=False, caught_up_s_ago=None):
    progress = SimpleNamespace(is_catching_up=is_catching_up, caught_up_s_ago=caught_up_s_ago)
    return LoadLag(progress, oldest_waiting_at, clock, FLUSH_S)


def never_looks():
    raise AssertionError("the log is not read for this")


def test_a_loader_that_has_just_caught_up_is_not_behind(clock):
    assert not lag_of(clock, never_looks, caught_up_s_ago=FLUSH_S + SLACK_S).is_behind()


def test_a_loader_that_left_records_in_the_log_is_behind(clock):
    assert lag_of(clock, never_looks, is_catching_up=True).is_behind()
    assert lag_of(clock, never_looks, is_catching_up=True, caught_up_s_ago=60).is_behind()


def test_after_a_start_only_records_that_arrived_before_it_are_late(clock):
    now = clock.now_us()
    for waiting_since, expected in ((None, False), (now + 1, False), (now, False), (now - 1, True)):
        assert lag_of(clock, lambda at=waiting_since: at).is_behind() is expected, waiting_since


def test_a_record_is_late_after_the_flush_interval_and_some_slack(clock):
    waiting_since = clock.now_us()
    lag = lag_of(clock, lambda: waiting_since, caught_up_s_ago=60)
    clock.advance((LATE_US // 1000) + 1)
    assert lag.is_behind()
    fresh = lag_of(clock, clock.now_us, caught_up_s_ago=60)
    assert not fresh.is_behind()


def test_a_record_from_before_the_clock_was_set_back_is_late(clock):
    assert lag_of(clock, lambda: clock.now_us() + 2 * 3_600_000_000, caught_up_s_ago=60).is_behind()


def test_what_cannot_be_known_counts_as_behind(clock):
    def fails():
        raise OSError("no such file")

    assert lag_of(clock, fails).is_behind()


def test_the_log_is_looked_at_once_for_many_reads(clock):
    looks = []
    lag = lag_of(clock, lambda: looks.append(1))
    assert not any(lag.is_behind() for _ in range(100))
    assert len(looks) < 100


class TestRunner:
    @pytest.fixture
    def parts(self):
        parts = MagicMock()
        parts.clock.now_ms.return_value = 0
        return parts

    @pytest.fixture
    def runner(self, parts):
        return LoadRunner(lambda: parts, LoadMetrics(CollectorRegistry()))

    def test_it_has_not_caught_up_before_its_first_step(self, runner, parts):
        assert runner.caught_up_s_ago is None
        parts.loader.load_next_range.return_value = 0
        runner.step()
        assert runner.caught_up_s_ago is not None
        assert not runner.is_catching_up

    def test_it_is_catching_up_until_a_range_was_the_last(self, runner, parts):
        seen = []

        def load(loaded, *, is_last):
            seen.append((runner.is_catching_up, runner.caught_up_s_ago is not None))
            parts.loader.has_reached_end = is_last
            return loaded

        ranges = iter([(9, False), (9, True), (9, True), (0, True)])

        def load_next():
            loaded, is_last = next(ranges)
            return load(loaded, is_last=is_last)

        parts.loader.load_next_range.side_effect = load_next
        runner.step()
        assert seen == [(False, False), (True, False), (False, True), (False, True)], (
            "a loader that keeps up with a steady load has caught up, though its step never ends"
        )
