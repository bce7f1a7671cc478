"""Readings under way: once for all who wait, in bounded time and number."""

import asyncio
import threading

import pytest

from mauve.query import flights as under_test
from mauve.query.answer import Answer, Freshness
from mauve.query.flights import CrowdedError, Flights
from support import PATIENCE_S, TurnedLoop

LIMIT_S = 600.0
ANSWER = Answer(b"{}", Freshness.MISS, 0)


class Gate:
    """A reading that waits until it is let go, and counts how often it was made."""

    def __init__(self):
        self._open = threading.Event()
        self._begun = threading.Semaphore(0)
        self.times = 0

    def __call__(self):
        self.times += 1
        self._begun.release()
        assert self._open.wait(PATIENCE_S)
        return ANSWER

    async def begun(self):
        """Return when one more reading has begun."""
        assert await asyncio.to_thread(self._begun.acquire, timeout=PATIENCE_S)

    def let_go(self):
        self._open.set()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.let_go()


@pytest.fixture
def fly(gate, monkeypatch):
    """Run a test in an event loop whose clock it turns."""

    def run(scenario):
        flights = Flights("test", threads=2, limit_s=LIMIT_S)

        async def begin():
            try:
                await scenario(flights)
            finally:
                gate.let_go()

        with asyncio.Runner(loop_factory=TurnedLoop) as runner:
            monkeypatch.setattr(under_test, "time", runner.get_loop().as_time())
            try:
                runner.run(begin())
            finally:
                flights.close()

    return run


def turn_clock():
    asyncio.get_running_loop().turn(LIMIT_S)


def test_the_same_is_read_once_for_all_who_ask(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join("a", gate)) for _ in range(50)]
        await gate.begun()
        gate.let_go()
        assert await asyncio.gather(*asking) == [ANSWER] * 50
        assert gate.times == 1
        await flights.join("a", gate)
        assert gate.times == 2, "what has landed is not under way any more"

    fly(scenario)


def test_different_ones_do_not_wait_for_each_other(fly, gate):
    async def scenario(flights):
        slow = asyncio.create_task(flights.join("slow", gate))
        await gate.begun()
        assert await flights.join("quick", lambda: ANSWER) == ANSWER
        gate.let_go()
        await slow

    fly(scenario)


def test_one_that_asked_may_leave_without_taking_the_answer_from_the_others(fly, gate):
    async def scenario(flights):
        leaving, staying = (asyncio.create_task(flights.join("a", gate)) for _ in range(2))
        await gate.begun()
        leaving.cancel()
        gate.let_go()
        assert await staying == ANSWER

    fly(scenario)


def test_nobody_waits_longer_than_the_limit_and_who_comes_late_does_not_wait(fly, gate):
    async def scenario(flights):
        first = asyncio.create_task(flights.join("a", gate))
        await gate.begun()
        turn_clock()
        for asking in (first, flights.join("a", gate)):
            with pytest.raises(TimeoutError):
                await asking
        assert gate.times == 1

    fly(scenario)


def test_what_could_not_begin_in_time_is_not_begun(fly, gate):
    async def scenario(flights):
        made = []
        asking = [asyncio.create_task(flights.join(key, gate)) for key in ("a", "b")]  # as many as there are threads
        for _ in asking:
            await gate.begun()
        asking.append(asyncio.create_task(flights.join("late", lambda: made.append(1) or ANSWER)))
        await asyncio.sleep(0)
        turn_clock()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
        gate.let_go()
        while len(flights):  # noqa: ASYNC110 - the threads are no part of asyncio
            await asyncio.sleep(0.001)
        assert made == []

    fly(scenario)


def test_a_failure_reaches_everybody_and_the_next_one_tries_again(fly):
    def fail():
        raise OSError("the disk is gone")

    async def scenario(flights):
        results = await asyncio.gather(*(flights.join("a", fail) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        assert await flights.join("a", lambda: ANSWER) == ANSWER

    fly(scenario)


def test_too_many_at_once_are_refused_at_once(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join(number, gate)) for number in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await flights.join("one more", gate)
        joining = asyncio.create_task(flights.join(0, gate))
        await asyncio.sleep(0)
        gate.let_go()
        assert await asyncio.gather(*asking, joining) == [ANSWER] * 65

    fly(scenario)
