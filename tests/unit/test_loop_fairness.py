"""Heavy work shares the event loop with requests that need only a quick reply."""

import asyncio

from mauve.overload.admission import ROUND_S_MAX, LoopFairness
from support.clocks import Ticks

HEAVY_S = ROUND_S_MAX * 0.6


async def heavy(fairness, ticks, done, name):
    if fairness.should_wait(ticks()):
        await fairness.wait()
    ticks.now_s += HEAVY_S
    done.append(name)


async def run_all(count):
    """Start much heavy work and one quick reply after it; return the order in which they finished."""
    ticks, done = Ticks(), []
    fairness = LoopFairness(ticks)
    tasks = [asyncio.create_task(heavy(fairness, ticks, done, number)) for number in range(count)]

    async def quick():
        done.append("quick")

    tasks.append(asyncio.create_task(quick()))
    await asyncio.gather(*tasks)
    return done


def test_a_quick_reply_does_not_wait_for_all_heavy_work():
    done = asyncio.run(run_all(100))
    assert done.index("quick") <= 3


def test_all_work_is_done_once_and_in_order_of_arrival():
    done = asyncio.run(run_all(100))
    done.remove("quick")
    assert done == list(range(100))


def test_light_work_is_not_deferred():
    async def light():
        ticks = Ticks()
        fairness = LoopFairness(ticks)
        return [fairness.should_wait(ticks()) for _ in range(100)]

    assert asyncio.run(light()) == [False] * 100


def test_deferred_light_work_is_done_in_few_rounds():
    """Even if a round takes long for other reasons, waiting work is not started one by one."""

    async def after_a_stall():
        ticks, done, rounds = Ticks(), [], 0
        fairness = LoopFairness(ticks)

        async def light(number):
            if fairness.should_wait(ticks()):
                await fairness.wait()
            done.append(number)

        await heavy(fairness, ticks, [], "first")
        ticks.now_s += 1
        tasks = [asyncio.create_task(light(number)) for number in range(1000)]
        while len(done) < 1000:
            rounds += 1
            ticks.now_s += 0.05  # refusals, or another process
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return done, rounds

    done, rounds = asyncio.run(after_a_stall())
    assert done == list(range(1000))
    assert rounds < 20


def test_a_cancelled_waiter_does_not_hold_up_the_others():
    async def with_one_cancelled():
        ticks, done = Ticks(), []
        fairness = LoopFairness(ticks)
        tasks = [asyncio.create_task(heavy(fairness, ticks, done, number)) for number in range(10)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert asyncio.run(with_one_cancelled()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
