"""Readings under way: once for all who wait, in bounded time and number."""

import asyncio
import math
import threading

import pytest

from mauve.query import single_flight as under_test
from mauve.query.answer import Answer, Freshness
from mauve.query.single_flight import CrowdedError, SingleFlight
from mauve.stores.cancellation import seconds_left
from support.clocks import TurnedLoop
from support.service import PATIENCE_S

LIMIT_S = 600.0
ANSWER = Answer(b"{}", Freshness.MISS, 0)
ACME, OTHERS = "org_acme", "org_others"


class RequestGuard:
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
    made = RequestGuard()
    yield made
    made.let_go()


@pytest.fixture
def brief():
    made = RequestGuard()
    yield made
    made.let_go()


@pytest.fixture
def fly(gate, brief, monkeypatch):
    """Run a test in an event loop whose clock it turns."""

    def run(scenario, threads=2):
        flights = SingleFlight("test", threads, limit_s=LIMIT_S)

        async def begin():
            try:
                await scenario(flights)
            finally:
                gate.let_go()
                brief.let_go()

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
        asking = [asyncio.create_task(flights.join(ACME, "a", gate)) for _ in range(50)]
        await gate.begun()
        gate.let_go()
        assert await asyncio.gather(*asking) == [ANSWER] * 50
        assert gate.times == 1
        await flights.join(ACME, "a", gate)
        assert gate.times == 2, "what has landed is not under way any more"

    fly(scenario)


def test_different_ones_do_not_wait_for_each_other(fly, gate):
    async def scenario(flights):
        slow = asyncio.create_task(flights.join(ACME, "slow", gate))
        await gate.begun()
        assert await flights.join(OTHERS, "quick", lambda: ANSWER) == ANSWER
        gate.let_go()
        await slow

    fly(scenario)


def test_one_that_asked_may_leave_without_taking_the_answer_from_the_others(fly, gate):
    async def scenario(flights):
        leaving, staying = (asyncio.create_task(flights.join(ACME, "a", gate)) for _ in range(2))
        await gate.begun()
        leaving.cancel()
        gate.let_go()
        assert await staying == ANSWER

    fly(scenario)


def test_nobody_waits_longer_than_the_limit_and_who_comes_late_does_not_wait(fly, gate):
    async def scenario(flights):
        first = asyncio.create_task(flights.join(ACME, "a", gate))
        await gate.begun()
        turn_clock()
        for asking in (first, flights.join(ACME, "a", gate)):
            with pytest.raises(TimeoutError):
                await asking
        assert gate.times == 1

    fly(scenario)


def test_what_could_not_begin_in_time_is_not_begun(fly, gate):
    async def scenario(flights):
        made = []
        asking = [
            asyncio.create_task(flights.join(key, key, gate)) for key in (ACME, OTHERS)
        ]  # as many as there are threads
        for _ in asking:
            await gate.begun()
        asking.append(asyncio.create_task(flights.join(OTHERS, "late", lambda: made.append(1) or ANSWER)))
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
        results = await asyncio.gather(*(flights.join(ACME, "a", fail) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        assert await flights.join(ACME, "a", lambda: ANSWER) == ANSWER

    fly(scenario)


def test_too_many_at_once_are_refused_at_once(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join((ACME, OTHERS)[number % 2], number, gate)) for number in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await flights.join(OTHERS, "one more", gate)
        joining = asyncio.create_task(flights.join(ACME, 0, gate))
        await asyncio.sleep(0)
        gate.let_go()
        assert await asyncio.gather(*asking, joining) == [ANSWER] * 65

    fly(scenario)


def test_an_organization_holds_half_of_the_threads_and_the_others_are_answered(fly, gate):
    async def scenario(flights):
        slow = [asyncio.create_task(flights.join(ACME, number, gate)) for number in range(5)]
        await gate.begun()
        for number in range(20):
            assert await flights.join(OTHERS, f"quick {number}", lambda: ANSWER) == ANSWER
        assert gate.times == 1, "the second thread is not for those who have one"
        gate.let_go()
        assert await asyncio.gather(*slow) == [ANSWER] * 5
        assert gate.times == 5

    fly(scenario)


def test_an_organization_takes_half_of_the_places_in_the_line(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join(ACME, number, gate)) for number in range(32)]
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await flights.join(ACME, "one more", gate)
        assert await flights.join(OTHERS, "quick", lambda: ANSWER) == ANSWER
        gate.let_go()
        assert await asyncio.gather(*asking) == [ANSWER] * 32
        assert await flights.join(ACME, "one more", gate) == ANSWER, "there is room again"

    fly(scenario)


def test_two_busy_organizations_do_not_shut_out_a_third(fly, gate, brief):
    async def scenario(flights):
        busy = [asyncio.create_task(flights.join(ACME, "brief", brief))]
        busy += [asyncio.create_task(flights.join((OTHERS, ACME)[number % 2], number, gate)) for number in range(63)]
        await brief.begun()
        for _ in range(3):  # and so all threads are taken
            await gate.begun()
        third = asyncio.create_task(flights.join("org_third", "a", lambda: ANSWER))
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await flights.join("org_third", "one more", gate)
        brief.let_go()
        assert await third == ANSWER, "the thread that is free first is for who has none"
        gate.let_go()
        assert await asyncio.gather(*busy) == [ANSWER] * 64

    fly(scenario, threads=4)


def test_those_who_come_first_are_bounded_as_well(fly, gate):
    async def scenario(flights):
        first_ones = [asyncio.create_task(flights.join(f"org_{number}", number, gate)) for number in range(256)]
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await flights.join("org_more", "a", gate)
        gate.let_go()
        assert await asyncio.gather(*first_ones) == [ANSWER] * 256

    fly(scenario)


def test_organizations_that_wait_take_turns(fly, gate, brief):
    async def scenario(flights):
        order = []
        held = asyncio.create_task(flights.join("org_held", "held", gate))
        asking = [asyncio.create_task(flights.join("org_brief", "brief", brief))]
        await gate.begun()
        await brief.begun()
        for name in (ACME, OTHERS):
            asking += [
                asyncio.create_task(flights.join(name, (name, number), lambda name=name: order.append(name)))
                for number in range(10)
            ]
        await asyncio.sleep(0)
        brief.let_go()  # One thread is for all of them.
        await asyncio.gather(*asking)
        assert order == [ACME, OTHERS] * 10
        gate.let_go()
        await held

    fly(scenario)


def test_who_has_waited_in_vain_keeps_no_place_in_the_line(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join((ACME, OTHERS)[number % 2], number, gate)) for number in range(64)]
        for _ in range(2):
            await gate.begun()
        turn_clock()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}
        again = [asyncio.create_task(flights.join(name, f"again {name}", lambda: ANSWER)) for name in (ACME, OTHERS)]
        await asyncio.sleep(0)
        assert len(flights) == 4, "what holds a thread, and what has just been asked"
        gate.let_go()
        assert await asyncio.gather(*again) == [ANSWER] * 2
        assert gate.times == 2

    fly(scenario)


def test_a_reading_knows_when_it_must_end(fly):
    async def scenario(flights):
        assert 0 < await flights.join(ACME, "a", seconds_left) <= LIMIT_S

    fly(scenario)
    assert seconds_left() == math.inf
