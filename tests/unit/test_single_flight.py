"""Concurrent reads are shared, and bounded in time and number."""

import asyncio
import math
import threading

import pytest

from mauve.query import single_flight as under_test
from mauve.query.answer_cache import Answer, Freshness
from mauve.query.single_flight import ReadersBusyError, SingleFlight
from mauve.stores.cancellation import seconds_left
from support.clocks import TurnedLoop
from support.service import PATIENCE_S

LIMIT_S = 600.0
ANSWER = Answer(b"{}", Freshness.MISS, 0)
ACME, OTHERS = "org_acme", "org_others"


class BlockedRead:
    """A read that blocks until it is released, and counts how often it runs."""

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
        """Return when one more read has started."""
        assert await asyncio.to_thread(self._begun.acquire, timeout=PATIENCE_S)

    def release(self):
        self._open.set()


@pytest.fixture
def gate():
    made = BlockedRead()
    yield made
    made.release()


@pytest.fixture
def brief():
    made = BlockedRead()
    yield made
    made.release()


@pytest.fixture
def fly(gate, brief, monkeypatch):
    """Run a test in an event loop whose clock it advances."""

    def run(scenario, threads=2):
        flights = SingleFlight("test", threads, limit_s=LIMIT_S)

        async def begin():
            try:
                await scenario(flights)
            finally:
                gate.release()
                brief.release()

        with asyncio.Runner(loop_factory=TurnedLoop) as runner:
            monkeypatch.setattr(under_test, "time", runner.get_loop().as_time())
            try:
                runner.run(begin())
            finally:
                flights.close()

    return run


def expire_limit():
    asyncio.get_running_loop().turn(LIMIT_S)


def test_concurrent_callers_share_one_read(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join(ACME, "a", gate)) for _ in range(50)]
        await gate.begun()
        gate.release()
        assert await asyncio.gather(*asking) == [ANSWER] * 50
        assert gate.times == 1
        await flights.join(ACME, "a", gate)
        assert gate.times == 2, "a finished read is not in flight"

    fly(scenario)


def test_different_reads_do_not_wait_for_each_other(fly, gate):
    async def scenario(flights):
        slow = asyncio.create_task(flights.join(ACME, "slow", gate))
        await gate.begun()
        assert await flights.join(OTHERS, "quick", lambda: ANSWER) == ANSWER
        gate.release()
        await slow

    fly(scenario)


def test_a_caller_that_gives_up_does_not_cancel_the_read_of_the_others(fly, gate):
    async def scenario(flights):
        leaving, staying = (asyncio.create_task(flights.join(ACME, "a", gate)) for _ in range(2))
        await gate.begun()
        leaving.cancel()
        gate.release()
        assert await staying == ANSWER

    fly(scenario)


def test_no_caller_waits_longer_than_the_limit_of_the_read_it_joined(fly, gate):
    async def scenario(flights):
        first = asyncio.create_task(flights.join(ACME, "a", gate))
        await gate.begun()
        expire_limit()
        for asking in (first, flights.join(ACME, "a", gate)):
            with pytest.raises(TimeoutError):
                await asking
        assert gate.times == 1

    fly(scenario)


def test_a_read_that_found_no_thread_in_time_never_starts(fly, gate):
    async def scenario(flights):
        made = []
        asking = [
            asyncio.create_task(flights.join(key, key, gate)) for key in (ACME, OTHERS)
        ]  # as many as there are threads
        for _ in asking:
            await gate.begun()
        asking.append(asyncio.create_task(flights.join(OTHERS, "late", lambda: made.append(1) or ANSWER)))
        await asyncio.sleep(0)
        expire_limit()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
        gate.release()
        while len(flights):  # noqa: ASYNC110 - the threads are outside asyncio
            await asyncio.sleep(0.001)
        assert made == []

    fly(scenario)


def test_a_failure_reaches_every_caller_and_the_next_one_tries_again(fly):
    def fail():
        raise OSError("the disk is gone")

    async def scenario(flights):
        results = await asyncio.gather(*(flights.join(ACME, "a", fail) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [OSError] * 3
        assert await flights.join(ACME, "a", lambda: ANSWER) == ANSWER

    fly(scenario)


def test_a_read_over_the_limit_is_refused_immediately(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join((ACME, OTHERS)[number % 2], number, gate)) for number in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(ReadersBusyError):
            await flights.join(OTHERS, "one more", gate)
        joining = asyncio.create_task(flights.join(ACME, 0, gate))
        await asyncio.sleep(0)
        gate.release()
        assert await asyncio.gather(*asking, joining) == [ANSWER] * 65

    fly(scenario)


def test_an_organization_holds_half_of_the_threads_at_most(fly, gate):
    async def scenario(flights):
        slow = [asyncio.create_task(flights.join(ACME, number, gate)) for number in range(5)]
        await gate.begun()
        for number in range(20):
            assert await flights.join(OTHERS, f"quick {number}", lambda: ANSWER) == ANSWER
        assert gate.times == 1, "the second thread is for an organization without one"
        gate.release()
        assert await asyncio.gather(*slow) == [ANSWER] * 5
        assert gate.times == 5

    fly(scenario)


def test_an_organization_takes_half_of_the_queue_at_most(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join(ACME, number, gate)) for number in range(32)]
        await asyncio.sleep(0)
        with pytest.raises(ReadersBusyError):
            await flights.join(ACME, "one more", gate)
        assert await flights.join(OTHERS, "quick", lambda: ANSWER) == ANSWER
        gate.release()
        assert await asyncio.gather(*asking) == [ANSWER] * 32
        assert await flights.join(ACME, "one more", gate) == ANSWER, "there is room again"

    fly(scenario)


def test_two_busy_organizations_do_not_shut_out_a_third(fly, gate, brief):
    async def scenario(flights):
        busy = [asyncio.create_task(flights.join(ACME, "brief", brief))]
        busy += [asyncio.create_task(flights.join((OTHERS, ACME)[number % 2], number, gate)) for number in range(63)]
        await brief.begun()
        for _ in range(3):  # now all threads are busy
            await gate.begun()
        third = asyncio.create_task(flights.join("org_third", "a", lambda: ANSWER))
        await asyncio.sleep(0)
        with pytest.raises(ReadersBusyError):
            await flights.join("org_third", "one more", gate)
        brief.release()
        assert await third == ANSWER, "the first free thread goes to an organization without one"
        gate.release()
        assert await asyncio.gather(*busy) == [ANSWER] * 64

    fly(scenario, threads=4)


def test_first_reads_of_organizations_are_bounded_too(fly, gate):
    async def scenario(flights):
        first_ones = [asyncio.create_task(flights.join(f"org_{number}", number, gate)) for number in range(256)]
        await asyncio.sleep(0)
        with pytest.raises(ReadersBusyError):
            await flights.join("org_more", "a", gate)
        gate.release()
        assert await asyncio.gather(*first_ones) == [ANSWER] * 256

    fly(scenario)


def test_waiting_organizations_take_turns(fly, gate, brief):
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
        brief.release()  # All of them share one thread.
        await asyncio.gather(*asking)
        assert order == [ACME, OTHERS] * 10
        gate.release()
        await held

    fly(scenario)


def test_an_expired_read_leaves_the_queue(fly, gate):
    async def scenario(flights):
        asking = [asyncio.create_task(flights.join((ACME, OTHERS)[number % 2], number, gate)) for number in range(64)]
        for _ in range(2):
            await gate.begun()
        expire_limit()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}
        again = [asyncio.create_task(flights.join(name, f"again {name}", lambda: ANSWER)) for name in (ACME, OTHERS)]
        await asyncio.sleep(0)
        assert len(flights) == 4, "two hold a thread, two were just queued"
        gate.release()
        assert await asyncio.gather(*again) == [ANSWER] * 2
        assert gate.times == 2

    fly(scenario)


def test_a_read_knows_its_deadline(fly):
    async def scenario(flights):
        assert 0 < await flights.join(ACME, "a", seconds_left) <= LIMIT_S

    fly(scenario)
    assert seconds_left() == math.inf
