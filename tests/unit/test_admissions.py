"""Deciding about reads takes bounded time, and a flood of one organization leaves threads for the others."""

import asyncio
import threading
from contextlib import closing

import pytest

from mauve.query.single_flight import Admissions
from mauve.stores import StoreUnavailableError
from support.service import PATIENCE_S


@pytest.fixture
def held():
    """What a decision waits for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_flood_of_one_organization_leaves_threads_for_another(held):
    async def decide():
        with closing(Admissions(4, PATIENCE_S)) as admissions:
            flood = [asyncio.create_task(admissions.run("flooding", held.wait)) for _ in range(50)]
            await asyncio.sleep(0)
            assert await admissions.run("other", lambda: "admitted") == "admitted"
            assert not any(each.done() for each in flood)
            held.set()
            assert all(await asyncio.gather(*flood)), "they wait for their turns, and none is refused"

    asyncio.run(decide())


def test_what_is_not_decided_in_time_is_refused_and_not_decided_later(held):
    decided = []

    async def decide():
        with closing(Admissions(2, 0.05)) as admissions:
            slow = admissions.run("organization", held.wait)
            queued = admissions.run("organization", lambda: decided.append("late"))
            errors = await asyncio.gather(slow, queued, return_exceptions=True)
            assert [type(error) for error in errors] == [StoreUnavailableError] * 2
            assert "within 0.05 s" in str(errors[0])
            held.set()

    asyncio.run(decide())
    assert decided == []


def test_a_refusal_reaches_the_caller():
    async def decide():
        with closing(Admissions(2, PATIENCE_S)) as admissions:
            await admissions.run("organization", lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(decide())
