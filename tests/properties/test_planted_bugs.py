"""Checks of the simulation: each bug planted here must be found, or the simulation proves nothing.

Proves: recovery-cost.
"""

import dataclasses
import os

import pytest

from mauve.core.batch import received_at_of
from mauve.load import arrival_order
from mauve.load import loader as loading
from mauve.load.arrival_order import ArrivalOrder
from mauve.load.loader import IDEMPOTENCY_WINDOW_MS, Loader
from mauve.load.rows import LogRange
from mauve.stores.log.files import segments
from mauve.stores.log.files import writer as writer_module
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.warehouse import SameId
from support.simulated_disk import MachineDownError, SimulatedDisk
from support.simulated_stores import SimulatedLedger, SimulatedWarehouse
from support.simulation import first_violation

SCHEDULES_TO_FIND_A_BUG = range(10_000)


def is_found(disk_class=SimulatedDisk, mark=None, schedules=SCHEDULES_TO_FIND_A_BUG):
    return first_violation(schedules, disk_class, mark) is not None


def test_without_a_bug_nothing_is_found():
    assert not first_violation(range(300))


class TestDisk:
    """Bugs of a writer that misuses the disk, planted in the disk."""

    def test_a_writer_that_acknowledges_before_it_syncs(self):
        class Disk(SimulatedDisk):
            def sync(self, descriptor):
                self.before_sync()
                self.call()

        assert is_found(Disk)

    def test_a_writer_that_does_not_sync_directories(self):
        class Disk(SimulatedDisk):
            def sync_directory(self, path):
                self.call()

        assert is_found(Disk)

    def test_a_writer_that_ignores_short_writes(self):
        class Disk(SimulatedDisk):
            def pwritev(self, descriptor, buffers, offset):
                super().pwritev(descriptor, buffers, offset)
                return sum(map(len, buffers))

        assert is_found(Disk)

    def test_a_writer_that_retries_a_failed_sync(self):
        class Disk(SimulatedDisk):
            def sync(self, descriptor):
                try:
                    super().sync(descriptor)
                except MachineDownError:
                    raise
                except OSError:
                    self.sync(descriptor)

        assert is_found(Disk)


class TestLog:
    def test_a_reader_that_ignores_checksums(self, monkeypatch):
        monkeypatch.setattr(segments, "is_intact", lambda header, payload: True)
        assert is_found()

    def test_a_reader_for_which_a_torn_tail_is_fatal(self, monkeypatch):
        frame_at = segments.SegmentFile.frame_at

        def whole_frame_at(self, offset, above):
            found = frame_at(self, offset, above)
            if found is None and self.bytes_at(offset, segments.MARK_BYTES) == self._segment.mark:
                raise ValueError("a torn frame")
            return found

        monkeypatch.setattr(segments.SegmentFile, "frame_at", whole_frame_at)
        assert is_found()

    def test_a_reader_that_returns_records_that_may_be_lost(self, monkeypatch):
        monkeypatch.setattr(SegmentLogReader, "sync", lambda *_: None)
        assert is_found()

    def test_a_reader_that_takes_stale_frames_for_current(self, monkeypatch):
        frame_at = segments.SegmentFile.frame_at

        def frame_of_any_age_at(self, offset, above):
            self._segment = segments.Segment(0, self._segment.mark)
            return frame_at(self, offset, 0)

        monkeypatch.setattr(segments.SegmentFile, "frame_at", frame_of_any_age_at)
        assert is_found(mark=b"all same")

    def test_a_reader_that_trims_unread_records(self, monkeypatch):
        monkeypatch.setattr(SegmentLogReader, "is_spent", lambda *_: True)
        assert is_found()

    def test_a_writer_that_reuses_numbers(self, monkeypatch):
        monkeypatch.setattr(writer_module, "NUMBER_GAP", 1)
        assert is_found()

    def test_a_writer_that_appends_after_a_torn_tail(self, monkeypatch):
        begin = writer_module.Tail.__init__

        def begin_in_the_newest_segment(self, disk, directory, **options):
            begin(self, disk, directory, **options)
            found = segments.list_segments(disk, directory)
            if not found:
                return
            self._mark, self._next_number = found[-1].mark, found[-1].first
            with segments.open_segment(disk, directory, found[-1]) as file:
                while frame := file.frame_at(self._offset, 0):
                    self._offset, self._next_number = frame.end, frame.number + 1
            self._descriptor = disk.open(directory / found[-1].name, os.O_WRONLY)

        monkeypatch.setattr(writer_module.Tail, "__init__", begin_in_the_newest_segment)
        assert is_found()

    def test_a_writer_that_continues_after_a_failure(self, monkeypatch):
        monkeypatch.setattr(SegmentLogWriter, "refuse_everything", lambda self, reason: None)
        assert is_found()


class TestLoader:
    def test_a_loader_that_commits_the_position_before_it_stores(self, monkeypatch):
        load = Loader.load_range

        def finish_first(self, log_range, known):
            finish = self.finish_range
            finish(LogRange(log_range.records), set())
            self.finish_range = lambda *step: None
            load(self, log_range, known)
            self.finish_range = finish

        monkeypatch.setattr(Loader, "load_range", finish_first)
        assert is_found()

    def test_a_loader_that_does_not_ask_the_warehouse_before_it_repeats(self, monkeypatch):
        monkeypatch.setattr(SimulatedWarehouse, "stored_after", lambda *_: {})
        assert is_found()

    def test_a_loader_that_looks_for_stored_rows_from_a_millisecond_too_late(self, monkeypatch):
        real = ArrivalOrder.received_from
        monkeypatch.setattr(
            ArrivalOrder, "received_from", lambda *given: None if (moment := real(*given)) is None else moment + 1
        )
        assert is_found()

    def test_a_loader_that_looks_for_stored_rows_from_the_first_record_on_although_the_clock_was_set_back(
        self, monkeypatch
    ):
        def received_from_first(self, positions):
            streams = [
                self._through(stream, [], positions.get(stream, 0), bytes_max=1) for stream in self._list_streams()
            ]
            return min((received_at_of(found[0].record.payload) or 0 for found in streams if found), default=None)

        monkeypatch.setattr(ArrivalOrder, "received_from", received_from_first)
        assert is_found()

    def test_a_loader_that_mixes_new_records_with_those_half_stored(self, monkeypatch):
        monkeypatch.setattr(Loader, "unfinished_range", lambda *_: LogRange())
        assert is_found()

    def test_a_loader_that_trims_before_the_position_is_committed(self, monkeypatch):
        load = Loader.load_and_read_ahead

        def trim_first(self, log_range, known, positions):
            self.trim(positions)
            load(self, log_range, known, positions)

        monkeypatch.setattr(Loader, "load_and_read_ahead", trim_first)
        assert is_found()

    def test_a_loader_that_continues_where_a_failed_step_would_have_ended(self, monkeypatch):
        load = Loader.load_and_read_ahead

        def load_and_keep_the_end(self, log_range, known, positions):
            self._positions = positions
            load(self, log_range, known, positions)

        monkeypatch.setattr(Loader, "load_and_read_ahead", load_and_keep_the_end)
        assert is_found()

    @pytest.mark.parametrize("milliseconds", [-1, 1])
    def test_a_window_for_repeats_that_is_off_by_one(self, monkeypatch, milliseconds):
        monkeypatch.setattr(loading, "IDEMPOTENCY_WINDOW_MS", IDEMPOTENCY_WINDOW_MS + milliseconds)
        assert is_found()

    def test_a_loader_that_misses_repeats_within_a_range(self, monkeypatch):
        real = loading.repeats_among

        def only_earlier_ones(rows, same_ids, stored, window_ms):
            apart = [SameId([place], before) for places, before in same_ids for place in places]
            return real(rows, apart, stored, window_ms)

        monkeypatch.setattr(loading, "repeats_among", only_earlier_ones)
        assert is_found()

    def test_a_loader_that_judges_one_stream_after_another(self, monkeypatch):
        monkeypatch.setattr(
            arrival_order, "by_arrival", lambda found: [(stream, record) for _, stream, record in found]
        )
        assert is_found()

    def test_a_loader_that_goes_beyond_what_was_read_of_every_stream(self, monkeypatch):
        take_until = ArrivalOrder.take_until
        monkeypatch.setattr(
            ArrivalOrder,
            "take_until",
            lambda self, stream, waiting, later, _: take_until(self, stream, waiting, later, None),
        )
        assert is_found()

    def test_a_loader_that_finishes_one_stream_of_a_step_before_another(self, monkeypatch):
        real = ArrivalOrder.take_unfinished
        monkeypatch.setattr(
            ArrivalOrder,
            "take_unfinished",
            lambda self, positions, last: [each for each in real(self, positions, last) if each[0] in last],
        )
        # A rare coincidence in an earlier release: a cut between two names of a step, with the earlier event in the
        # other.
        assert is_found(schedules=range(22_000, 23_000))

    def test_a_loader_that_does_not_know_the_ids_of_a_failed_step(self, monkeypatch):
        monkeypatch.setattr(SimulatedWarehouse, "recover_ids", lambda *_: None)
        assert is_found()

    def test_a_loader_that_judges_stored_rows_again(self, monkeypatch):
        real = loading.repeats_among
        monkeypatch.setattr(loading, "repeats_among", lambda rows, last, stored, window: real(rows, last, {}, window))
        assert is_found()

    def test_a_loader_that_drops_unreadable_records(self, monkeypatch):
        finish = Loader.finish_range
        monkeypatch.setattr(
            Loader,
            "finish_range",
            lambda self, log_range, repeats: finish(self, dataclasses.replace(log_range, unreadable=[]), repeats),
        )
        assert is_found()

    def test_a_ledger_that_bills_a_step_twice(self, monkeypatch):
        finish = SimulatedLedger.finish

        def finish_twice(self, step):
            finish(self, step)
            finish(self, dataclasses.replace(step, positions_before=step.positions))

        monkeypatch.setattr(SimulatedLedger, "finish", finish_twice)
        assert is_found()
