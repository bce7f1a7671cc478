"""Bodies may come slowly, if they come; nobody holds anything by pretending to send."""

import asyncio
import selectors

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mauve.core.problems import Busy
from mauve.web.body import BYTES_PER_S, GRACE_S, TOTAL_S, IncompleteBodyError, Pace, never, read_body

MEGABYTE = 1024 * 1024


def seconds_waited(size_after, looks=1000):
    """Return after how many seconds a body is given up of which so much is there after each second."""
    pace = Pace(0.0)
    return next((now for now in range(1, looks) if pace.is_late(now, size_after(now))), None)


def test_a_megabyte_over_a_poor_connection_is_waited_for():
    assert MEGABYTE / BYTES_PER_S < TOTAL_S
    arrives_after_s = MEGABYTE // BYTES_PER_S
    assert seconds_waited(lambda now: min(now * BYTES_PER_S, MEGABYTE)) > arrives_after_s


def test_who_sends_nothing_has_the_grace():
    assert seconds_waited(lambda now: 0) == GRACE_S + 1


def test_who_sends_a_byte_now_and_then_has_little_more():
    assert seconds_waited(lambda now: now) == GRACE_S + 1


def test_a_burst_is_no_licence_to_stand_still():
    assert seconds_waited(lambda now: MEGABYTE - 1) == GRACE_S + 2


def test_who_stands_still_and_goes_on_within_the_grace_is_waited_for():
    assert seconds_waited(lambda now: now // 10 * 10 * 4 * BYTES_PER_S, looks=100) is None


def test_nobody_is_waited_for_without_end():
    assert seconds_waited(lambda now: now * 10 * BYTES_PER_S) == TOTAL_S + 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 4 * BYTES_PER_S), min_size=200, max_size=200))
def test_whoever_is_waited_for_keeps_the_pace(arrivals):
    pace, size = Pace(0.0), 0
    for now, arrived in enumerate(arrivals, 1):
        size += arrived
        if pace.is_late(now, size):
            return
        assert size >= (now - GRACE_S) * BYTES_PER_S - 1
        assert now <= TOTAL_S
    raise AssertionError("longer than the longest")


def test_a_body_is_slow_after_the_grace():
    pace = Pace(100.0)
    assert not pace.is_slow(100.0 + GRACE_S)
    assert pace.is_slow(100.5 + GRACE_S)


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes as quickly as everybody waits."""

    def __init__(self):
        self._passed_s = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout=None):
                loop._passed_s += timeout or 0
                return super().select(0)

        super().__init__(Selector())

    def time(self):
        return self._passed_s


def arrival(pieces, every_s, is_in_the_way=never):
    """Return what becomes of a body at the ASGI door, and after how many seconds."""

    async def chunks():
        for piece in pieces:
            await asyncio.sleep(every_s)
            yield piece

    async def scenario():
        try:
            outcome = await read_body(chunks(), MEGABYTE, is_in_the_way)
        except (IncompleteBodyError, Busy) as error:
            outcome = type(error)
        return outcome, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(scenario())


def test_the_asgi_door_waits_for_a_slow_body():
    outcome, took_s = arrival([b"x" * 2 * BYTES_PER_S] * 50, every_s=2.0)
    assert outcome == b"x" * 100 * BYTES_PER_S
    assert took_s == pytest.approx(100)


def test_the_asgi_door_gives_up_one_that_does_not_come():
    outcome, took_s = arrival([b"x"] * 100, every_s=1.0)
    assert outcome is IncompleteBodyError
    assert GRACE_S < took_s < GRACE_S + 3


def test_the_asgi_door_gives_up_a_slow_one_that_is_in_the_way():
    outcome, took_s = arrival([b"x" * BYTES_PER_S] * 128, every_s=1.0, is_in_the_way=lambda: True)
    assert outcome is Busy
    assert GRACE_S < took_s < GRACE_S + 3
