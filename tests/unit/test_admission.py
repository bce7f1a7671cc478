"""Admission control under overload, with a manual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.overload.admission import (
    BURST_S_MAX,
    CONGESTED_AFTER_S,
    IN_FLIGHT_MAX,
    IN_FLIGHT_MIN,
    WAIT_S_MAX,
    Admission,
    Slot,
    limit_at,
)
from support.clocks import Ticks

PACE_S = 0.005


class Server:
    """A process that serves one request every `PACE_S`, in order of arrival."""

    def __init__(self, flush_s=0.0, round_s=0.0):
        self.ticks = Ticks()
        self.admission = Admission(lambda: flush_s, lambda: round_s, self.ticks)
        self.queue = []

    def offer(self, org_id="org_1"):
        """Offer a request; return whether it was admitted."""
        if self.admission.is_full(org_id):
            return False
        slot = Slot(org_id)
        self.admission.enter(slot)
        self.queue.append(slot)
        return True

    def work(self, count=1, pace_s=PACE_S):
        for _ in range(count):
            slot = self.queue.pop(0)
            slot.started_at = self.ticks()
            self.ticks.now_s += pace_s
            self.admission.record_work(slot)
            self.admission.leave(slot)

    def sync(self, seconds):
        """Answer all requests at once, after time spent on no work."""
        for slot in self.queue:
            slot.started_at = self.ticks()
            self.admission.record_work(slot)
        self.ticks.now_s += seconds
        while self.queue:
            self.admission.leave(self.queue.pop(0))

    def overload(self, org_id="org_1", rounds=1500):
        """Offer far more requests than are served."""
        for _ in range(rounds):
            while self.offer(org_id):
                pass
            self.work()


def test_without_congestion_every_request_is_admitted():
    server = Server()
    for _ in range(200):
        assert all(server.offer() for _ in range(4))
        server.work(4, pace_s=0.0001)
    assert all(server.offer() for _ in range(IN_FLIGHT_MAX))
    assert not server.offer()


def test_under_overload_admitted_requests_are_served_in_time():
    server = Server()
    server.overload()
    assert server.admission.limit == pytest.approx(WAIT_S_MAX / PACE_S, rel=0.1)
    waited = []
    for _ in range(200):
        while server.offer():
            pass
        entered_at = server.queue[0].entered_at
        server.work()
        waited.append(server.ticks.now_s - entered_at)
    assert max(waited) <= WAIT_S_MAX * 1.1


def test_one_slow_request_does_not_stop_admission():
    server = Server()
    server.offer()
    server.work(pace_s=3.0)
    assert server.admission.limit >= IN_FLIGHT_MIN
    assert all(server.offer() for _ in range(IN_FLIGHT_MIN))


def test_a_slow_disk_does_not_lower_the_limit():
    """One sync serves all requests that wait for it, so a longer queue does not mean a longer wait."""
    server = Server(flush_s=0.4)
    for _ in range(50):
        assert all(server.offer() for _ in range(200))
        server.sync(0.4)
    assert server.admission.limit == IN_FLIGHT_MAX


def test_remaining_work_of_the_ledger_counts_too():
    server = Server()
    for _ in range(1500):
        while server.offer():
            pass
        server.admission.record_work(server.queue[0], remaining_s=PACE_S)
        server.ticks.now_s += PACE_S
        server.admission.leave(server.queue.pop(0))
    assert server.admission.limit < IN_FLIGHT_MAX / 4


def test_long_rounds_of_the_event_loop_do_not_lower_the_limit():
    """Refusals themselves make rounds long. If that counted as congestion, the limit would never recover."""
    server = Server(round_s=0.05)
    server.overload()
    server.work(len(server.queue))
    for _ in range(1000):
        for _ in range(20):
            server.offer()
        server.sync(0.15)
    assert all(server.offer() for _ in range(100))


def test_after_the_overload_the_limit_recovers():
    server = Server()
    server.overload()
    server.work(len(server.queue), pace_s=0.0001)
    for _ in range(IN_FLIGHT_MAX):
        server.offer()
        server.work(pace_s=0.0001)
    assert server.admission.limit == IN_FLIGHT_MAX


def test_a_noisy_organization_does_not_displace_a_quiet_one():
    server = Server()
    server.overload("noisy")
    while server.offer("noisy"):
        pass
    assert [server.offer("quiet") for _ in range(3)] == [True] * 3
    assert not server.offer("noisy")


def test_many_quiet_organizations_cannot_grow_the_queue_without_bound():
    server = Server()
    server.overload("noisy")
    while server.offer("noisy"):
        pass
    admitted = sum(server.offer(f"quiet_{number}") for number in range(1000))
    assert 0 < admitted <= server.admission.limit
    assert server.admission.total <= 2 * server.admission.limit


def test_two_noisy_organizations_get_a_fair_share_each():
    server = Server()
    done = {"a": 0, "b": 0}
    server.overload("a")
    for _ in range(600):
        while server.offer("a") or server.offer("b"):
            pass
        done[server.queue[0].org_id] += 1
        server.work()
    assert min(done.values()) >= sum(done.values()) / 4


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2)), max_size=200))
def test_the_count_in_flight_always_matches_the_queue(steps):
    server = Server()
    for org_id, pace_s in steps:
        if not server.offer(org_id) or pace_s > 1:
            server.work(pace_s=pace_s)
        assert server.admission.total == len(server.queue)
        assert IN_FLIGHT_MIN <= server.admission.limit <= IN_FLIGHT_MAX
    server.work(len(server.queue))
    assert server.admission.total == 0


@given(st.floats(0, 1e6), st.sampled_from([WAIT_S_MAX, BURST_S_MAX]))
def test_the_limit_is_what_can_be_served_in_time_within_bounds(pace_s, wait_s_max):
    limit = limit_at(pace_s, wait_s_max)
    assert IN_FLIGHT_MIN <= limit <= IN_FLIGHT_MAX
    assert limit == IN_FLIGHT_MIN or limit * pace_s <= wait_s_max


def test_a_sudden_burst_is_limited_to_what_can_be_served_soon():
    server = Server()
    for _ in range(500):
        server.offer()
        server.work(pace_s=CONGESTED_AFTER_S * 0.9)
    while server.offer():
        pass
    assert server.admission.total == pytest.approx(BURST_S_MAX / CONGESTED_AFTER_S / 0.9, rel=0.1)
