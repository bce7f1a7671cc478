"""Event caps hold without the core: the ledger's count plus what processes have accepted since.

Proves: event-cap.
"""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from mauve.access import event_caps
from mauve.core.accepted import MERGED_SHARE, SUBTOTALS_MAX
from mauve.core.batch import packed_header
from mauve.ingest.accept import append_counted
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Entry
from mauve.stores.log import MIXED_STREAM, LogFailedError
from mauve.stores.log.files.reader import SegmentLogReader
from support.capped import ORG, Process, SharedStreams, World
from support.ledger_entries import a_payment

NEXT_PERIOD_MS = 31 * 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    opened.set_cap(100)
    yield opened
    opened.close()


def test_a_process_stops_at_the_cap_before_anything_is_loaded(world):
    async def main():
        process = Process(world, 1)
        accepted = [await process.offer(7) for _ in range(50)]
        assert (process.events, accepted.index(False)) == (105, 15)
        process.refresh()
        assert process.known == 105
        await process.stop()

    asyncio.run(main())


def test_requests_in_flight_count_so_concurrent_ones_overshoot_by_one_batch(world):
    async def main():
        process = Process(world, 1)
        accepted = await asyncio.gather(*(process.offer(30) for _ in range(40)))
        assert (sum(accepted), process.events) == (4, 120)
        mixed = await asyncio.gather(*(process.offer_with_payments(30) for _ in range(10)))
        assert sum(mixed) == 0
        await process.stop()

    asyncio.run(main())


def test_batches_with_payments_in_flight_count_too(world):
    async def main():
        process = Process(world, 1)
        accepted = await asyncio.gather(*(process.offer_with_payments(30) for _ in range(40)))
        assert (sum(accepted), process.known) == (4, 120)
        await process.stop()

    asyncio.run(main())


def test_two_processes_know_of_each_other_after_a_refresh_each(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        for _ in range(6):
            assert await one.offer(10)
        assert await two.offer(10)
        assert (one.known, two.known) == (60, 10)
        one.refresh()
        two.refresh()
        one.refresh()
        assert (one.known, two.known) == (70, 70)
        assert await two.offer(30)
        assert not await two.offer(1)
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_loading_moves_events_into_the_count_and_counts_none_twice(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        for number in range(8):
            await (one, two)[number % 2].offer(5)
        for stream, records in ((1, 1), (2, 3), (1, 9), (2, 9)):
            world.load(stream, records)
            for process in (one, two, one):
                process.refresh()
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
        process.refresh()
        assert process.known == 40
        assert await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_payments_and_their_events_are_known_everywhere_after_a_refresh(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer_with_payments(20)
        world.record(Entry(payments=[a_payment(f"inv_{number}") for number in range(5)]))
        for process in (one, two, one, two):
            process.refresh()
        assert (one.known, two.known) == (25, 25)
        world.load(MIXED_STREAM, repeats=3)
        for process in (one, two):
            process.refresh()
        assert (one.known, two.known) == (22, 22)
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_events_the_ledger_did_not_record_do_not_count(world):
    async def main():
        process = Process(world, 1)
        with pytest.raises(StoreUnavailableError), process.caps.recording(process.org_period(), 50):
            raise StoreUnavailableError("busy")
        assert process.known == 0
        await process.stop()

    asyncio.run(main())


def test_events_the_log_did_not_store_do_not_count(world):
    async def main():
        process = Process(world, 1)
        process.caps.reserve(process.org_period(), 50)
        assert process.known == 50
        process.caps.cancel(process.org_period(), 50)
        assert process.known == 0
        await process.stop()

    asyncio.run(main())


def test_a_record_loaded_before_its_request_resumes_is_not_counted_twice(world):
    async def main():
        process = Process(world, 1)
        process.caps.reserve(process.org_period(), 30)
        number = await process.log.append(
            (packed_header("proj_1", ORG, world.clock.now_ms(), world.clock.now_us(), 30), b"{}")
        )
        world.load(1)
        process.refresh()
        process.caps.commit(process.org_period(), 30, number)
        assert process.known == 30
        await process.stop()

    asyncio.run(main())


def test_a_killed_process_is_counted_by_the_others_and_recounts_its_log_on_restart(world):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer(30)
        one.refresh()
        assert await one.offer(20)  # not shared yet
        two.refresh()
        assert two.known == 30
        one = await one.restarted()
        assert one.known == 50
        one.refresh()
        two.refresh()
        assert two.known == 50
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["lost", "torn"])
def test_counts_lost_in_a_power_cut_are_rebuilt_from_the_log(world, damage):
    async def main():
        one = Process(world, 1)
        assert await one.offer(30)
        one.refresh()
        await one.die()
        file = world.folder / "accepted" / "001"
        file.unlink() if damage == "lost" else file.write_bytes(file.read_bytes()[:-3])
        one = Process(world, 1)
        assert one.known == 30
        await one.stop()

    asyncio.run(main())


def test_a_long_stream_is_recounted_in_steps_while_the_shared_count_stands(world, monkeypatch):
    monkeypatch.setattr(event_caps, "RECOUNT_RECORDS_MAX", 10)
    world.set_cap(1000)

    async def main():
        one = Process(world, 1)
        for _ in range(25):
            assert await one.offer(2)
        one.refresh()
        assert await one.offer(7)
        one = await one.restarted()
        assert one.known == 50
        assert await one.offer(1)
        one.refresh()
        assert one.known == 51
        one.refresh()
        one.refresh()
        assert one.known == 58
        await one.stop()

    asyncio.run(main())


def test_a_cap_set_later_counts_events_already_waiting(world):
    async def main():
        world.set_cap(None)
        one, two = Process(world, 1), Process(world, 2)
        for process in (one, two):
            for _ in range(3):
                assert await process.offer(40)
            process.refresh()
        assert (one.known, list(one.exchange.own())) == (0, []), "without a cap nothing is counted"
        world.set_cap(250)
        for process in (one, two):
            process.refresh()
        assert await one.offer(5)
        for _ in range(3):  # recount the log, share the count, read what is shared
            for process in (one, two):
                process.refresh()
        assert (one.known, two.known) == (245, 245)
        world.set_cap(None)
        for process in (one, two):
            process.refresh()
        assert list(one.exchange.own()) == []
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_a_request_in_flight_when_the_cap_is_set_is_counted(world):
    async def main():
        world.set_cap(None)
        process = Process(world, 1)
        sending = asyncio.ensure_future(process.offer(40))
        await asyncio.sleep(0)  # It is being appended, and not counted yet.
        world.set_cap(100)
        process.refresh()
        assert await sending
        process.refresh()
        assert process.known == 40
        await process.stop()

    asyncio.run(main())


def test_a_changed_cap_applies_from_the_next_refresh(world):
    async def main():
        process = Process(world, 1)
        assert await process.offer(100)
        assert not await process.offer(1)
        world.set_cap(150)
        process.refresh()
        assert await process.offer(60)
        world.set_cap(10)
        process.refresh()
        assert not await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_the_next_period_starts_at_zero_and_a_clock_set_back_finds_the_old_count(world):
    async def main():
        process = Process(world, 1)
        assert await process.offer(100)
        world.clock.advance(NEXT_PERIOD_MS)
        assert await process.offer(3)
        process.refresh()
        assert process.known == 3
        world.load(1)
        process.refresh()
        assert process.known == 3
        world.clock.advance(-NEXT_PERIOD_MS)
        process.refresh()
        assert process.known == 100
        assert not await process.offer(1)
        await process.stop()

    asyncio.run(main())


def test_while_the_ledger_is_down_its_last_count_stands_and_new_events_are_added(world, monkeypatch):
    async def main():
        one, two = Process(world, 1), Process(world, 2)
        assert await one.offer(20)
        world.load(1)
        one.refresh()

        def down(*_args):
            raise StoreUnavailableError("down")

        monkeypatch.setattr("mauve.stores.ledger.usage.UsageReader.counted", down)
        assert await two.offer(30)
        assert await one.offer_with_payments(7)
        two.refresh()
        one.refresh()
        assert one.known == 57
        world.clock.advance(NEXT_PERIOD_MS)
        one.refresh()
        assert one.known == 0, "the last count belongs to the previous period"
        world.clock.advance(-NEXT_PERIOD_MS)
        monkeypatch.undo()
        one.refresh()
        assert one.known == 57
        for process in (one, two):
            await process.stop()

    asyncio.run(main())


def test_events_of_one_organization_do_not_count_for_another(world):
    async def main():
        world.set_cap(50, "org_2")
        process = Process(world, 1)
        assert await process.offer(100)
        assert await process.offer(10, "org_2")
        assert process.caps.events(process.org_period("org_2")) == 10
        await process.stop()

    asyncio.run(main())


def test_counts_stay_compact_during_an_outage_and_are_never_too_low(world):
    async def main():
        world.set_cap(10**6)
        process = Process(world, 1)
        for _ in range(5 * SUBTOTALS_MAX):
            await process.offer(3)
        process.refresh()
        assert process.known == 15 * SUBTOTALS_MAX
        ((_, lines),) = process.exchange.own()[1]
        assert len(lines) <= SUBTOTALS_MAX
        while world.load(1, 7):
            process.refresh()
            assert process.known >= 15 * SUBTOTALS_MAX
        assert process.known == 15 * SUBTOTALS_MAX
        await process.stop()

    asyncio.run(main())


def test_an_organization_without_a_cap_leaves_no_trace(world):
    async def main():
        world.set_cap(None, ORG)
        process = Process(world, 1)
        assert await process.offer(500)
        process.refresh()
        assert process.known == 0
        assert not (world.folder / "accepted").exists()
        await process.stop()

    asyncio.run(main())


def test_in_steady_traffic_a_cap_engages_close_to_its_value(world):
    async def main():
        world.set_cap(20_000)
        process = Process(world, 1)
        accepted = 0
        while await process.offer(10):
            accepted += 1
            if accepted % 20 == 0:
                if accepted > 120:
                    world.load(1, 20)
                process.refresh()
        too_early = 20_000 - process.events
        assert 0 <= too_early <= 2 * 1200 // MERGED_SHARE
        await process.stop()

    asyncio.run(main())


def test_a_repeated_failure_is_logged_once_until_it_succeeds_again(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        blocking = world.folder / "accepted" / "001.new"
        for _ in range(2):
            blocking.mkdir(parents=True)  # so that the file cannot be written
            with capture_logs() as logged:
                for _ in range(5):
                    await process.offer(1)
                    process.refresh()
            blocking.rmdir()
            assert [line["event"] for line in logged] == ["accepted_not_shared"]
            process.refresh()
            with capture_logs() as logged, monkeypatch.context() as patch:
                patch.setattr(process.exchange, "others", _full_disk)
                for _ in range(5):
                    process.refresh()
            assert [line["event"] for line in logged] == ["caps_not_refreshed"]
            process.refresh()
        assert process.known == 10
        await process.stop()

    asyncio.run(main())


def test_a_failing_refresh_task_logs_once(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        monkeypatch.setattr(event_caps, "REFRESH_EVERY_S", 0.001)
        refreshes = itertools.count(1)
        loop, refreshed_often = asyncio.get_running_loop(), asyncio.Event()

        def failing():
            if next(refreshes) == 5:
                loop.call_soon_threadsafe(refreshed_often.set)
            raise OSError("a full disk")

        monkeypatch.setattr(process.exchange, "others", failing)
        with capture_logs() as logged:
            refreshing = asyncio.create_task(process.caps.refresh_forever())
            await refreshed_often.wait()
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
        assert [line["event"] for line in logged] == ["caps_not_refreshed"]
        await process.stop()

    asyncio.run(main())


def test_a_process_starts_if_its_log_cannot_be_recounted_and_retries_at_the_next_refresh(world, monkeypatch):
    async def main():
        process = Process(world, 1)
        assert await process.offer(30)
        await process.die()
        with capture_logs() as logged, monkeypatch.context() as patch:
            patch.setattr(SegmentLogReader, "records", _full_disk)
            process = Process(world, 1)
            assert [line["event"] for line in logged] == ["caps_not_refreshed"]
        assert await process.offer(5)
        process.refresh()
        assert process.known == 35
        await process.stop()

    asyncio.run(main())


def test_a_cancelled_request_counts_if_its_record_is_in_the_log(world):
    async def main():
        process = Process(world, 1)
        parts = SimpleNamespace(caps=process.caps, log=process.log)
        header = packed_header("proj_1", ORG, world.clock.now_ms(), world.clock.now_us(), 30)
        appended = append_counted(parts, (header, b"{}"), process.org_period(), 30)
        request = asyncio.create_task(asyncio.wait_for(asyncio.shield(appended), None))
        await asyncio.sleep(0)
        request.cancel()
        assert isinstance(*await asyncio.gather(request, return_exceptions=True), asyncio.CancelledError)
        assert process.known == 30, "it is being appended"
        await process.log.close()
        assert process.known == 30
        process.refresh()
        assert process.known == 30
        world.load(1)
        process.refresh()
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


def test_processes_that_share_their_streams_count_each_event_once(world):
    async def main():
        streams = SharedStreams(world, (240, 241, 242))
        one, two = Process(world, 1, streams), Process(world, 2, streams)
        for number in range(8):
            assert await (one, two)[number % 3 == 0].offer(5)
        for process in (one, two, one):
            process.refresh()
        assert (one.known, two.known) == (40, 40)
        for stream, records in ((240, 1), (241, 2), (242, 9), (240, 9), (241, 9)):
            world.load(stream, records)
            for process in (one, two, one):
                process.refresh()
            assert (one.known, two.known) == (40, 40)
        assert not any(any(counts.values()) for counts in streams.shared.values())
        for process in (one, two):
            await process.stop()
        await streams.end()

    asyncio.run(main())


def test_on_shared_streams_a_killed_process_loses_only_what_it_had_not_shared_until_it_is_loaded(world):
    async def main():
        streams = SharedStreams(world, (240, 241, 242))
        one, two = Process(world, 1, streams), Process(world, 2, streams)
        for _ in range(3):
            assert await one.offer(10)
        one.refresh()
        assert await one.offer(7)  # not shared yet
        one = await one.restarted()
        two.refresh()
        assert (one.known, two.known) == (30, 30)
        for stream in (240, 241, 242):
            world.load(stream)
        for process in (one, two):
            process.refresh()
        assert (one.known, two.known) == (37, 37)
        for process in (one, two):
            await process.stop()
        await streams.end()

    asyncio.run(main())


def test_a_record_confirmed_late_counts_until_its_own_number_is_loaded(world):
    async def main():
        world.set_cap(10**6)
        streams = SharedStreams(world, (240,))
        process = Process(world, 1, streams)
        places = []
        for _ in range(3 * SUBTOTALS_MAX):
            process.caps.reserve(process.org_period(), 4)
            header = packed_header("proj_1", ORG, world.clock.now_ms(), world.clock.now_us(), 4)
            places.append(await streams.append((header, b"{}")))
        for place in reversed(places):
            process.caps.commit(process.org_period(), 4, place)
        expected = 4 * len(places)
        while world.load(240, 11):
            process.refresh()
            assert expected <= process.known <= expected + expected // MERGED_SHARE
        assert process.known == expected
        await process.stop()
        await streams.end()

    asyncio.run(main())


def _full_disk(*_):
    raise OSError("a full disk")
