"""Who is let in when more is asked than can be done: one rule, with the clock in hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.overload.admission import (
    BURST_S_MAX,
    CROWDED_AFTER_S,
    UNDER_WAY_MAX,
    UNDER_WAY_MIN,
    WAIT_S_MAX,
    Admission,
    Slot,
    limit_at,
)
from support.clocks import Ticks

PACE_S = 0.005


class Door:
    """A process that does one request every so often, in the order of arrival."""

    def __init__(self, flush_s=0.0, round_s=0.0):
        self.ticks = Ticks()
        self.admission = Admission(lambda: flush_s, lambda: round_s, self.ticks)
        self.line = []

    def knock(self, org_id="org_1"):
        """Enter if there is room; tell whether there was."""
        if self.admission.is_full(org_id):
            return False
        stay = Slot(org_id)
        self.admission.enter(stay)
        self.line.append(stay)
        return True

    def work(self, count=1, pace_s=PACE_S):
        for _ in range(count):
            stay = self.line.pop(0)
            stay.begun_at = self.ticks()
            self.ticks.now_s += pace_s
            self.admission.judged(stay)
            self.admission.leave(stay)

    def sync(self, seconds):
        """Answer all at once, after some time in which no work was done."""
        for stay in self.line:
            stay.begun_at = self.ticks()
            self.admission.judged(stay)
        self.ticks.now_s += seconds
        while self.line:
            self.admission.leave(self.line.pop(0))

    def crowd(self, org_id="org_1", rounds=1500):
        """Let far more come than are done."""
        for _ in range(rounds):
            while self.knock(org_id):
                pass
            self.work()


def test_as_long_as_nobody_waits_everybody_is_let_in():
    door = Door()
    for _ in range(200):
        assert all(door.knock() for _ in range(4))
        door.work(4, pace_s=0.0001)
    assert all(door.knock() for _ in range(UNDER_WAY_MAX))
    assert not door.knock()


def test_under_a_crowd_those_let_in_are_done_in_time():
    door = Door()
    door.crowd()
    assert door.admission.limit == pytest.approx(WAIT_S_MAX / PACE_S, rel=0.1)
    waited = []
    for _ in range(200):
        while door.knock():
            pass
        entered_at = door.line[0].entered_at
        door.work()
        waited.append(door.ticks.now_s - entered_at)
    assert max(waited) <= WAIT_S_MAX * 1.1


def test_one_slow_request_does_not_close_the_door():
    door = Door()
    door.knock()
    door.work(pace_s=3.0)
    assert door.admission.limit >= UNDER_WAY_MIN
    assert all(door.knock() for _ in range(UNDER_WAY_MIN))


def test_a_slow_disk_is_no_reason_to_refuse():
    """One sync serves all who wait for it, so that a longer line is no longer wait."""
    door = Door(flush_s=0.4)
    for _ in range(50):
        assert all(door.knock() for _ in range(200))
        door.sync(0.4)
    assert door.admission.limit == UNDER_WAY_MAX


def test_what_the_ledger_has_still_to_do_is_work_as_well():
    door = Door()
    for _ in range(1500):
        while door.knock():
            pass
        door.admission.judged(door.line[0], still_to_do_s=PACE_S)
        door.ticks.now_s += PACE_S
        door.admission.leave(door.line.pop(0))
    assert door.admission.limit < UNDER_WAY_MAX / 4


def test_long_rounds_of_the_event_loop_are_no_reason_to_refuse_more():
    """Refusing makes them long when work is light. Were that a crowd, there would be no way back."""
    door = Door(round_s=0.05)
    door.crowd()
    door.work(len(door.line))
    for _ in range(1000):
        for _ in range(20):
            door.knock()
        door.sync(0.15)
    assert all(door.knock() for _ in range(100))


def test_after_the_crowd_the_door_is_open_again():
    door = Door()
    door.crowd()
    door.work(len(door.line), pace_s=0.0001)
    for _ in range(UNDER_WAY_MAX):
        door.knock()
        door.work(pace_s=0.0001)
    assert door.admission.limit == UNDER_WAY_MAX


def test_a_noisy_organization_does_not_push_out_a_quiet_one():
    door = Door()
    door.crowd("noisy")
    while door.knock("noisy"):
        pass
    assert [door.knock("quiet") for _ in range(3)] == [True] * 3
    assert not door.knock("noisy")


def test_the_quiet_ones_together_do_not_make_the_line_endless():
    door = Door()
    door.crowd("noisy")
    while door.knock("noisy"):
        pass
    let_in = sum(door.knock(f"quiet_{number}") for number in range(1000))
    assert 0 < let_in <= door.admission.limit
    assert door.admission.under_way <= 2 * door.admission.limit


def test_of_two_noisy_organizations_each_has_its_part():
    door = Door()
    done = {"a": 0, "b": 0}
    door.crowd("a")
    for _ in range(600):
        while door.knock("a") or door.knock("b"):
            pass
        done[door.line[0].org_id] += 1
        door.work()
    assert min(done.values()) >= sum(done.values()) / 4


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2)), max_size=200))
def test_whatever_happens_the_count_is_that_of_the_line(steps):
    door = Door()
    for org_id, pace_s in steps:
        if not door.knock(org_id) or pace_s > 1:
            door.work(pace_s=pace_s)
        assert door.admission.under_way == len(door.line)
        assert UNDER_WAY_MIN <= door.admission.limit <= UNDER_WAY_MAX
    door.work(len(door.line))
    assert door.admission.under_way == 0


@given(st.floats(0, 1e6), st.sampled_from([WAIT_S_MAX, BURST_S_MAX]))
def test_the_limit_is_what_is_done_in_time_within_its_bounds(pace_s, wait_s_max):
    limit = limit_at(pace_s, wait_s_max)
    assert UNDER_WAY_MIN <= limit <= UNDER_WAY_MAX
    assert limit == UNDER_WAY_MIN or limit * pace_s <= wait_s_max


def test_a_burst_out_of_the_blue_is_no_longer_than_can_be_done_soon():
    door = Door()
    for _ in range(500):
        door.knock()
        door.work(pace_s=CROWDED_AFTER_S * 0.9)
    while door.knock():
        pass
    assert door.admission.under_way == pytest.approx(BURST_S_MAX / CROWDED_AFTER_S / 0.9, rel=0.1)
