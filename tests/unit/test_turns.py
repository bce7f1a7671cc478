"""Heavy work shares the event loop with those who only want a short answer."""

import asyncio

from mauve.overload.loop_fairness import ROUND_S_MAX, LoopFairness
from support.clocks import Ticks

HEAVY_S = ROUND_S_MAX * 0.6


async def heavy(fairness, ticks, done, name):
    if fairness.is_over(ticks()):
        await fairness.next()
    ticks.now_s += HEAVY_S
    done.append(name)


async def everyone(count):
    """Start much heavy work and one quick answer behind it; return in which order they were done."""
    ticks, done = Ticks(), []
    fairness = LoopFairness(ticks)
    tasks = [asyncio.create_task(heavy(fairness, ticks, done, number)) for number in range(count)]

    async def quick():
        done.append("quick")

    tasks.append(asyncio.create_task(quick()))
    await asyncio.gather(*tasks)
    return done


def test_a_quick_answer_does_not_wait_behind_all_heavy_work():
    done = asyncio.run(everyone(100))
    assert done.index("quick") <= 3


def test_everything_is_done_once_and_in_the_order_of_arrival():
    done = asyncio.run(everyone(100))
    done.remove("quick")
    assert done == list(range(100))


def test_light_work_is_not_put_off():
    async def light():
        ticks = Ticks()
        fairness = LoopFairness(ticks)
        return [fairness.is_over(ticks()) for _ in range(100)]

    assert asyncio.run(light()) == [False] * 100


def test_light_work_that_was_put_off_is_done_in_few_rounds():
    """However long a round takes for other reasons, those who wait for it are not let in one by one."""

    async def behind_a_stall():
        ticks, done, rounds = Ticks(), [], 0
        fairness = LoopFairness(ticks)

        async def light(number):
            if fairness.is_over(ticks()):
                await fairness.next()
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

    done, rounds = asyncio.run(behind_a_stall())
    assert done == list(range(1000))
    assert rounds < 20


def test_who_gives_up_does_not_hold_up_the_others():
    async def with_one_cancelled():
        ticks, done = Ticks(), []
        fairness = LoopFairness(ticks)
        tasks = [asyncio.create_task(heavy(fairness, ticks, done, number)) for number in range(10)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert asyncio.run(with_one_cancelled()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
