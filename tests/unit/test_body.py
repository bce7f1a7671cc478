"""A slow body is accepted, a stalled one is not."""

import asyncio
import selectors

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mauve.core.problems import Busy
from mauve.web.body import BYTES_PER_S, GRACE_S, TOTAL_S, IncompleteBodyError, Pace, never, read_body

MEGABYTE = 1024 * 1024


def seconds_waited(size_after, checks=1000):
    """Return after how many seconds a body is given up, by its size after each second."""
    pace = Pace(0.0)
    return next((now for now in range(1, checks) if pace.is_late(now, size_after(now))), None)


def test_a_megabyte_over_a_poor_connection_is_accepted():
    assert MEGABYTE / BYTES_PER_S < TOTAL_S
    arrives_after_s = MEGABYTE // BYTES_PER_S
    assert seconds_waited(lambda now: min(now * BYTES_PER_S, MEGABYTE)) > arrives_after_s


def test_a_silent_sender_has_the_grace_period():
    assert seconds_waited(lambda now: 0) == GRACE_S + 1


def test_an_occasional_byte_buys_no_time():
    assert seconds_waited(lambda now: now) == GRACE_S + 1


def test_a_burst_does_not_buy_a_long_pause():
    assert seconds_waited(lambda now: MEGABYTE - 1) == GRACE_S + 2


def test_a_pause_within_the_grace_period_is_allowed():
    assert seconds_waited(lambda now: now // 10 * 10 * 4 * BYTES_PER_S, checks=100) is None


def test_a_body_has_a_total_time_limit():
    assert seconds_waited(lambda now: now * 10 * BYTES_PER_S) == TOTAL_S + 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 4 * BYTES_PER_S), min_size=200, max_size=200))
def test_an_accepted_body_keeps_the_pace(arrivals):
    pace, size = Pace(0.0), 0
    for now, arrived in enumerate(arrivals, 1):
        size += arrived
        if pace.is_late(now, size):
            return
        assert size >= (now - GRACE_S) * BYTES_PER_S - 1
        assert now <= TOTAL_S
    raise AssertionError("a body was read longer than the limit")


def test_a_body_is_slow_after_the_grace_period():
    pace = Pace(100.0)
    assert not pace.is_slow(100.0 + GRACE_S)
    assert pace.is_slow(100.5 + GRACE_S)


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self):
        self.passed_s = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout=None):
                loop.passed_s += timeout or 0
                return super().select(0)

        super().__init__(Selector())

    def time(self):
        return self.passed_s


def arrival(pieces, every_s, should_evict=never):
    """Return the outcome of reading a body, and after how many seconds."""

    async def chunks():
        for piece in pieces:
            await asyncio.sleep(every_s)
            yield piece

    async def scenario():
        try:
            outcome = await read_body(chunks(), MEGABYTE, should_evict)
        except (IncompleteBodyError, Busy) as error:
            outcome = type(error)
        return outcome, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(scenario())


def test_a_slow_body_is_read():
    outcome, took_s = arrival([b"x" * 2 * BYTES_PER_S] * 50, every_s=2.0)
    assert outcome == b"x" * 100 * BYTES_PER_S
    assert took_s == pytest.approx(100)


def test_a_stalled_body_is_given_up():
    outcome, took_s = arrival([b"x"] * 100, every_s=1.0)
    assert outcome is IncompleteBodyError
    assert GRACE_S < took_s < GRACE_S + 3


def test_a_slow_body_is_given_up_when_its_room_is_needed():
    outcome, took_s = arrival([b"x" * BYTES_PER_S] * 128, every_s=1.0, should_evict=lambda: True)
    assert outcome is Busy
    assert GRACE_S < took_s < GRACE_S + 3
