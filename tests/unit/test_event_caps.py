"""Event caps hold without the core: what the ledger has counted, and what processes accept behind it."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from mauve.access import event_caps, recount
from mauve.core.accepted import MERGED_SHARE, SUBTOTALS_MAX
from mauve.core.batch import packed_header
from mauve.ingest.accept import append_counted
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Entry
from mauve.stores.localdisk.log.reader import SegmentStreamReader
from mauve.stores.log import MIXED_STREAM, LogFailedError
from support.capped import ORG, Process, World
from support.ledger_entries import a_payment

NEXT_PERIOD_MS = 31 * 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    opened.set_cap(100)
    yield opened
    opened.close()


def test_a_process_stops_at_the_cap_though_nothing_is_loaded(world):
    async def main():
        process = Process(world, 1)
        taken = [await process.offer(7) for _ in range(50)]
        assert (process.events, taken.index(False)) == (105, 15)
        process.look()
        assert process.known == 105
        await process.stop()

    asyncio.run(main())


def test_requests_under_way_count_so_that_all_at_once_overshoot_by_one_batch(world):
    async def main():
        process = Process(world, 1)
        taken = await asyncio.gather(*(process.offer(30) for _ in range(40)))
        assert (sum(taken), process.events) == (4, 120)
        mixed = await asyncio.gather(*(process.offer_with_payments(30) for _ in range(10)))
        assert sum(mixed) == 0
        await process.stop()

    asyncio.run(main())


def test_batches_with_payments_under_way_count_as_well(world):
    async def main():
        process = Process(world, 1)
        taken = await asyncio.gather(*(process.offer_with_payments(30) for _ in range(40)))
        assert (sum(taken), process.known) == (4, 120)
        await process.stop()

    asyncio.run(main())


def test_two_processes_know_of_each_other_after_a_look_each(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        for _ in range(6):
            assert await one.offer(10)
        assert await two.offer(10)
        assert (one.known, two.known) == (60, 10)
        one.look()
        two.look()
        one.look()
        assert (one.known, two.known) == (70, 70)
        assert await two.offer(30)
        assert not await two.offer(1)
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_loading_moves_events_into_the_count_and_doubles_none(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        for number in range(8):
            await (one, two)[number % 2].offer(5)
        for stream, records in ((1, 1), (2, 3), (1, 9), (2, 9)):
            world.load(stream, records)
            for process in (one, two, one):
                process.look()
            assert (one.known, two.known) == (40, 40)
        assert not list(one.exchange.own())
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_repeats_count_until_they_are_loaded(world):
    async def main():
        process = Process(world, 1)
        assert await process.offer(100)
        assert not await process.offer(1)
        world.load(1, repeats=60)
        process.look()
        assert process.known == 40
        assert await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_payments_and_the_events_beside_them_are_known_everywhere_after_a_look(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer_with_payments(20)
        world.record(Entry(payments=[a_payment(f"inv_{number}") for number in range(5)]))
        for process in (one, two, one, two):
            process.look()
        assert (one.known, two.known) == (25, 25)
        world.load(MIXED_STREAM, repeats=3)
        for process in (one, two):
            process.look()
        assert (one.known, two.known) == (22, 22)
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_what_the_ledger_did_not_record_does_not_count(world):
    async def main():
        process = Process(world, 1)
        with pytest.raises(StoreUnavailableError), process.caps.recording(process.org_period(), 50):
            raise StoreUnavailableError("busy")
        assert process.known == 0
        await process.stop()

    asyncio.run(main())


def test_what_the_log_did_not_take_does_not_count(world):
    async def main():
        process = Process(world, 1)
        process.caps.begin(process.org_period(), 50)
        assert process.known == 50
        process.caps.give_up(process.org_period(), 50)
        assert process.known == 0
        await process.stop()

    asyncio.run(main())


def test_a_record_that_is_loaded_before_its_request_goes_on_is_not_doubled(world):
    async def main():
        process = Process(world, 1)
        process.caps.begin(process.org_period(), 30)
        number = await process.log.append(
            (packed_header("proj_1", ORG, world.clock.now_ms(), world.clock.now_us(), 30), b"{}")
        )
        world.load(1)
        process.look()
        process.caps.settle(process.org_period(), 30, number)
        assert process.known == 30
        await process.stop()

    asyncio.run(main())


def test_a_killed_process_is_counted_by_the_others_and_counts_its_own_log_when_it_is_back(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer(30)
        one.look()
        assert await one.offer(20)  # and nobody is told
        two.look()
        assert two.known == 30
        one = await one.restarted()
        assert one.known == 50
        one.look()
        two.look()
        assert two.known == 50
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["lost", "torn"])
def test_counts_that_a_power_cut_took_are_made_of_the_log_again(world, damage):
    async def main():
        one = Process(world, 1)
        assert await one.offer(30)
        one.look()
        await one.die()
        file = world.folder / "accepted" / "001"
        file.unlink() if damage == "lost" else file.write_bytes(file.read_bytes()[:-3])
        one = Process(world, 1)
        assert one.known == 30
        await one.stop()

    asyncio.run(main())


def test_a_long_stream_is_counted_again_piece_by_piece_and_what_was_shared_stands_meanwhile(world, monkeypatch):
    monkeypatch.setattr(recount, "RECORDS_AT_ONCE", 10)
    world.set_cap(1000)

    async def main():
        one = Process(world, 1)
        for _ in range(25):
            assert await one.offer(2)
        one.look()
        assert await one.offer(7)
        one = await one.restarted()
        assert one.known == 50
        assert await one.offer(1)
        one.look()
        assert one.known == 51
        one.look()
        one.look()
        assert one.known == 58
        await one.stop()

    asyncio.run(main())


def test_a_cap_that_is_set_later_counts_what_waits_already(world):
    async def main():
        world.set_cap(None)
        one, two = Process(world, 1), Process(world, 2)
        for process in (one, two):
            for _ in range(3):
                assert await process.offer(40)
            process.look()
        assert (one.known, list(one.exchange.own())) == (0, []), "without a cap nothing is counted"
        world.set_cap(250)
        for process in (one, two):
            process.look()
        assert await one.offer(5)
        for _ in range(3):  # to count the log again, to share it, to see what is shared
            for process in (one, two):
                process.look()
        assert (one.known, two.known) == (245, 245)
        world.set_cap(None)
        for process in (one, two):
            process.look()
        assert list(one.exchange.own()) == []
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_a_request_that_was_under_way_when_the_cap_came_is_counted(world):
    async def main():
        world.set_cap(None)
        process = Process(world, 1)
        sending = asyncio.ensure_future(process.offer(40))
        await asyncio.sleep(0)  # It is on its way into the log, and nobody counts it.
        world.set_cap(100)
        process.look()
        assert await sending
        process.look()
        assert process.known == 40
        await process.stop()

    asyncio.run(main())


def test_a_cap_that_is_raised_or_lowered_holds_from_the_next_look(world):
    async def main():
        process = Process(world, 1)
        assert await process.offer(100)
        assert not await process.offer(1)
        world.set_cap(150)
        process.look()
        assert await process.offer(60)
        world.set_cap(10)
        process.look()
        assert not await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_the_next_period_begins_at_nothing_and_a_clock_set_back_finds_the_old_count(world):
    async def main():
        process = Process(world, 1)
        assert await process.offer(100)
        world.clock.advance(NEXT_PERIOD_MS)
        assert await process.offer(3)
        process.look()
        assert process.known == 3
        world.load(1)
        process.look()
        assert process.known == 3
        world.clock.advance(-NEXT_PERIOD_MS)
        process.look()
        assert process.known == 100
        assert not await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_while_the_ledger_cannot_be_read_the_last_count_stands_and_the_others_are_added(world, monkeypatch):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer(20)
        world.load(1)
        one.look()

        def down(*_args):
            raise StoreUnavailableError("down")

        monkeypatch.setattr("mauve.stores.sql.ledger.usage.SqlUsageReader.counted", down)
        assert await two.offer(30)
        assert await one.offer_with_payments(7)
        two.look()
        one.look()
        assert one.known == 57
        world.clock.advance(NEXT_PERIOD_MS)
        one.look()
        assert one.known == 0, "the last count is of the period before"
        world.clock.advance(-NEXT_PERIOD_MS)
        monkeypatch.undo()
        one.look()
        assert one.known == 57
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_what_one_organization_sends_does_not_count_for_another(world):
    async def main():
        world.set_cap(50, "org_2")
        process = Process(world, 1)
        assert await process.offer(100)
        assert await process.offer(10, "org_2")
        assert process.caps.events(process.org_period("org_2")) == 10
        await process.stop()

    asyncio.run(main())


def test_counts_stay_few_through_an_outage_and_are_never_too_low(world):
    async def main():
        world.set_cap(10**6)
        process = Process(world, 1)
        for _ in range(5 * SUBTOTALS_MAX):
            await process.offer(3)
        process.look()
        assert process.known == 15 * SUBTOTALS_MAX
        ((_, lines),) = process.exchange.own()
        assert len(lines) <= SUBTOTALS_MAX
        while world.load(1, 7):
            process.look()
            assert process.known >= 15 * SUBTOTALS_MAX
        assert process.known == 15 * SUBTOTALS_MAX
        await process.stop()

    asyncio.run(main())


def test_an_organization_without_a_cap_leaves_no_trace(world):
    async def main():
        world.set_cap(None, ORG)
        process = Process(world, 1)
        assert await process.offer(500)
        process.look()
        assert process.known == 0
        assert not (world.folder / "accepted").exists()
        await process.stop()

    asyncio.run(main())


def test_a_cap_is_reached_in_steady_traffic_when_it_is_reached(world):
    async def main():
        world.set_cap(20_000)
        process = Process(world, 1)
        taken = 0
        while await process.offer(10):
            taken += 1
            if taken % 20 == 0:
                if taken > 120:
                    world.load(1, 20)
                process.look()
        too_early = 20_000 - process.events
        assert 0 <= too_early <= 2 * 1200 // MERGED_SHARE
        await process.stop()

    asyncio.run(main())


def test_what_fails_again_and_again_is_logged_once_until_it_has_succeeded(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        for _ in range(2):
            with capture_logs() as logged, monkeypatch.context() as patch:
                patch.setattr(process.exchange, "_write", _full_disk)
                for _ in range(5):
                    await process.offer(1)
                    process.look()
            assert [line["event"] for line in logged] == ["accepted_not_shared"]
            process.look()
            with capture_logs() as logged, monkeypatch.context() as patch:
                patch.setattr(process.exchange, "others", _full_disk)
                for _ in range(5):
                    process.look()
            assert [line["event"] for line in logged] == ["caps_not_refreshed"]
            process.look()
        assert process.known == 10
        await process.stop()

    asyncio.run(main())


def test_a_failing_look_is_logged_once_by_the_task_that_keeps_figures_current(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        monkeypatch.setattr(event_caps, "LOOK_EVERY_S", 0.001)
        looks = itertools.count(1)
        loop, looked_often = asyncio.get_running_loop(), asyncio.Event()

        def failing():
            if next(looks) == 5:
                loop.call_soon_threadsafe(looked_often.set)
            raise OSError("a full disk")

        monkeypatch.setattr(process.exchange, "others", failing)
        with capture_logs() as logged:
            keeping = asyncio.create_task(process.caps.keep_current())
            await looked_often.wait()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        assert [line["event"] for line in logged] == ["caps_not_refreshed"]
        await process.stop()

    asyncio.run(main())


def test_a_process_starts_though_its_log_cannot_be_counted_again_and_tries_at_the_next_look(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        assert await process.offer(30)
        await process.die()
        with capture_logs() as logged, monkeypatch.context() as patch:
            patch.setattr(SegmentStreamReader, "records", _full_disk)
            process = Process(world, 1)
            assert [line["event"] for line in logged] == ["caps_not_refreshed"]
        assert await process.offer(5)
        process.look()
        assert process.known == 35
        await process.stop()

    asyncio.run(main())


def test_a_request_that_is_given_up_counts_when_its_record_is_in_the_log(world):
    async def main():
        process = Process(world, 1)
        parts = SimpleNamespace(caps=process.caps, log=process.log)
        header = packed_header("proj_1", ORG, world.clock.now_ms(), world.clock.now_us(), 30)
        request = asyncio.create_task(append_counted(parts, (header, b"{}"), process.org_period(), 30))
        await asyncio.sleep(0)
        request.cancel()
        assert isinstance(*await asyncio.gather(request, return_exceptions=True), asyncio.CancelledError)
        assert process.known == 30, "it is on its way"
        await process.log.close()
        assert process.known == 30
        process.look()
        assert process.known == 30
        world.load(1)
        process.look()
        assert process.known == 30
        await process.stop()

    asyncio.run(main())


def test_a_record_that_the_log_refuses_does_not_count(world):
    async def main():
        process = Process(world, 1)
        parts = SimpleNamespace(caps=process.caps, log=process.log)
        await process.log.close()
        with pytest.raises(LogFailedError):
            await append_counted(parts, (b"", b"{}"), process.org_period(), 30)
        await asyncio.sleep(0)
        assert process.known == 0
        with pytest.raises(ValueError, match="above the limit"):
            await append_counted(parts, (b"", bytes(10**6)), process.org_period(), 30)
        assert process.known == 0
        await process.stop()

    asyncio.run(main())


def _full_disk(*_):
    raise OSError("a full disk")
