"""Room for bodies: bounded, in order, and never all of it for one."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.problems import Busy
from mauve.overload import byte_budget as budgets
from mauve.overload.byte_budget import ByteBudget
from support.service import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let nobody be sent away because the machine is slow."""
    monkeypatch.setattr(budgets, "WAIT_S_MAX", PATIENCE_S)


async def soon():
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_finds_no_room_waits_until_some_is_given_back():
    async def scenario():
        budget = ByteBudget(100)
        await budget.take(60, "a")
        waiting = asyncio.create_task(budget.take(50, "b"))
        await soon()
        assert not waiting.done()
        budget.give_back(60, "a")
        await waiting

    asyncio.run(scenario())


def test_slow_bodies_of_one_owner_leave_room_for_another():
    async def scenario():
        budget = ByteBudget(100)
        slow = [asyncio.create_task(budget.take(20, "slow")) for _ in range(10)]
        await soon()
        assert sum(task.done() for task in slow) == 3
        await budget.take(25, "quick")
        for task in slow:
            task.cancel()

    asyncio.run(scenario())


def test_a_body_larger_than_a_share_is_taken_when_its_owner_has_no_other():
    async def scenario():
        budget = ByteBudget(100)
        await budget.take(100, "a")

    asyncio.run(scenario())


def test_who_waits_too_long_is_told_to_come_back(monkeypatch):
    monkeypatch.setattr(budgets, "WAIT_S_MAX", 0.01)

    async def scenario():
        budget = ByteBudget(100)
        await budget.take(100, "a")
        with pytest.raises(Busy):
            await budget.take(1, "b")
        budget.give_back(100, "a")
        await budget.take(100, "b")

    asyncio.run(scenario())


def test_slow_bodies_of_whoever_holds_most_are_in_the_way_of_those_who_wait():
    async def scenario():
        budget = ByteBudget(100)
        await budget.take(75, "much")
        await budget.take(20, "little")
        assert not budget.is_wanted()
        assert not budget.is_wanted_from("much")
        waiting = asyncio.create_task(budget.take(10, "nothing yet"))
        await soon()
        assert budget.is_wanted()
        assert budget.is_wanted_from("much")
        assert budget.is_wanted_from("little")
        waiting.cancel()
        await soon()
        assert not budget.is_wanted_from("much")
        greedy = asyncio.create_task(budget.take(10, "much"))
        await soon()
        assert not budget.is_wanted_from("much"), "it would only have to wait for itself"
        assert not budget.is_wanted_from("little"), "who has more already waits"
        greedy.cancel()
        await soon()

    asyncio.run(scenario())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.booleans()), max_size=60))
def test_never_more_than_the_budget_is_held_and_nobody_is_forgotten(steps):
    async def scenario():
        budget = ByteBudget(100)
        tasks, held = [], []

        async def hold(size, owner):
            await budget.take(size, owner)
            held.append((size, owner))

        for owner, size, gives_back in steps:
            tasks.append(asyncio.create_task(hold(size, owner)))
            if gives_back and len(tasks) % 3 == 0:
                tasks[len(tasks) // 2].cancel()
            await soon()
            assert sum(size for size, _ in held) <= 100
            if gives_back and held:
                budget.give_back(*held.pop(0))
        for _ in range(len(tasks) + 1):
            await soon()
            while held:
                budget.give_back(*held.pop())
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [outcome for outcome in done if isinstance(outcome, Busy)] == []
        await budget.take(100, "d")

    asyncio.run(scenario())
