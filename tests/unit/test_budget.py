"""The byte budget for bodies: bounded, in order, and never all of it for one owner."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.problems import Busy
from mauve.overload import admission as budgets
from mauve.overload.admission import ByteBudget
from support.service import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Refuse no body because the machine is slow."""
    monkeypatch.setattr(budgets, "ROOM_WAIT_S_MAX", PATIENCE_S)


async def soon():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_body_waits_until_room_is_released():
    async def scenario():
        budget = ByteBudget(100)
        await budget.acquire(60, "a")
        waiting = asyncio.create_task(budget.acquire(50, "b"))
        await soon()
        assert not waiting.done()
        budget.release(60, "a")
        await waiting

    asyncio.run(scenario())


def test_slow_bodies_of_one_owner_leave_room_for_another():
    async def scenario():
        budget = ByteBudget(100)
        slow = [asyncio.create_task(budget.acquire(20, "slow")) for _ in range(10)]
        await soon()
        assert sum(task.done() for task in slow) == 3
        await budget.acquire(25, "quick")
        for task in slow:
            task.cancel()

    asyncio.run(scenario())


def test_a_body_larger_than_a_share_is_admitted_if_it_is_its_owners_only_one():
    async def scenario():
        budget = ByteBudget(100)
        await budget.acquire(100, "a")

    asyncio.run(scenario())


def test_a_body_that_waits_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(budgets, "ROOM_WAIT_S_MAX", 0.01)

    async def scenario():
        budget = ByteBudget(100)
        await budget.acquire(100, "a")
        with pytest.raises(Busy):
            await budget.acquire(1, "b")
        budget.release(100, "a")
        await budget.acquire(100, "b")

    asyncio.run(scenario())


def test_slow_bodies_of_the_largest_holders_are_evicted_when_others_wait():
    async def scenario():
        budget = ByteBudget(100)
        await budget.acquire(75, "much")
        await budget.acquire(20, "little")
        assert not budget.has_waiters()
        assert not budget.should_evict("much")
        waiting = asyncio.create_task(budget.acquire(10, "nothing yet"))
        await soon()
        assert budget.has_waiters()
        assert budget.should_evict("much")
        assert budget.should_evict("little")
        waiting.cancel()
        await soon()
        assert not budget.should_evict("much")
        greedy = asyncio.create_task(budget.acquire(10, "much"))
        await soon()
        assert not budget.should_evict("much"), "it would only wait for itself"
        assert not budget.should_evict("little"), "the waiting owner already holds more"
        greedy.cancel()
        await soon()

    asyncio.run(scenario())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.booleans()), max_size=60))
def test_the_budget_is_never_exceeded_and_every_waiter_is_served(steps):
    async def scenario():
        budget = ByteBudget(100)
        tasks, held = [], []

        async def hold(size, owner):
            await budget.acquire(size, owner)
            held.append((size, owner))

        for owner, size, releases in steps:
            tasks.append(asyncio.create_task(hold(size, owner)))
            if releases and len(tasks) % 3 == 0:
                tasks[len(tasks) // 2].cancel()
            await soon()
            assert sum(size for size, _ in held) <= 100
            if releases and held:
                budget.release(*held.pop(0))
        for _ in range(len(tasks) + 1):
            await soon()
            while held:
                budget.release(*held.pop())
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [outcome for outcome in done if isinstance(outcome, Busy)] == []
        await budget.acquire(100, "d")

    asyncio.run(scenario())
