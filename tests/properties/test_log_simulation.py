"""The segment log on a simulated disk that loses, tears and refuses what it may.

Everything is drawn from one seed. A schedule is several lives of a writer and a reader, each ended by a power cut
or a kill at any disk operation. Bugs are planted to see that the simulation finds them.
"""

import asyncio
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mauve.stores.localdisk import frames, segments, tail
from mauve.stores.localdisk.log import SegmentLogReader, SegmentLogWriter
from mauve.stores.log import LogFailedError, LogFullError
from simulated_disk import AMPLE, MachineDownError, SimulatedDisk

SEGMENT_BYTES = 2048
SCHEDULES = 2400
SCHEDULES_TO_FIND_A_BUG = 1200
ROOT = Path("/log")


class InlineExecutor(Executor):
    """Runs what it is given at once, in the caller's thread."""

    def submit(self, function, /, *arguments, **named):
        future = Future()
        future.set_result(function(*arguments, **named))
        return future


class Violation(AssertionError):  # noqa: N818 - it is a finding, not an error
    pass


class Schedule:
    """One run, and the model it is held against: what was issued, acknowledged, refused and read."""

    def __init__(self, seed: int, disk_class: type[SimulatedDisk], new_mark: Callable | None) -> None:
        self.rng = random.Random(seed)
        self.disk = disk_class(self.rng)
        self.new_mark = new_mark or (lambda: self.rng.randbytes(8))
        self.seconds = 0.0
        self.issued: dict[bytes, int] = {}
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.read: list[bytes] = []
        self.checkpoint = 0
        self.reader = self.open_reader()

    def open_reader(self) -> SegmentLogReader:
        return SegmentLogReader(ROOT, disk=self.disk, monotonic=lambda: self.seconds)

    def open_writer(self, budget_bytes: int) -> SegmentLogWriter:
        return SegmentLogWriter(
            ROOT,
            0,
            segment_bytes=SEGMENT_BYTES,
            budget_bytes=budget_bytes,
            disk=self.disk,
            new_thread=InlineExecutor,
            monotonic=lambda: self.seconds,
            new_mark=self.new_mark,
        )

    async def run(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            self.draw_faults()
            with suppress(MachineDownError):
                await self.live(self.open_writer(self.rng.choice([2, 4, 50]) * SEGMENT_BYTES))
            self.disk.restart(has_lost_power=self.rng.random() < 0.7)
            if self.rng.random() < 0.7:
                self.reader = self.open_reader()
        await self.finish()
        self.check()

    def draw_faults(self) -> None:
        rng, disk = self.rng, self.disk
        disk.calls_left = rng.choice([-1, rng.randint(0, 60), rng.randint(0, 250)])
        disk.sync_failure = rng.choice([0, 0, 0.1])
        disk.short_write = rng.choice([0, 0, 0.3])
        disk.room_bytes = rng.choice([AMPLE, AMPLE, rng.randint(1, 6) * SEGMENT_BYTES])
        disk.before_sync = lambda: self.load() if rng.random() < 0.3 else None

    async def live(self, writer: SegmentLogWriter) -> None:
        for _ in range(self.rng.randint(1, 12)):
            if self.disk.is_down:
                return
            await self.append_group(writer)
            if self.rng.random() < 0.4:
                self.load()
            if self.rng.random() < 0.3:
                self.trim()
            self.seconds += self.rng.choice([0, 0.05, 0.2, 2])

    async def append_group(self, writer: SegmentLogWriter) -> None:
        group = [self.payload() for _ in range(self.rng.randint(1, 6))]
        calls = (writer.append([payload[:3], payload[3:]]) for payload in group)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for payload, outcome in zip(group, outcomes, strict=True):
            if outcome is None:
                self.acknowledged.append(payload)
            elif isinstance(outcome, LogFullError):
                self.refused.append(payload)
            elif not isinstance(outcome, LogFailedError):
                raise outcome

    def payload(self) -> bytes:
        length = self.rng.choice([0, 8, 8, 30, 300, 900])
        payload = b"%06d" % len(self.issued) + self.rng.randbytes(length)
        self.issued[payload] = len(self.issued)
        return payload

    def load(self) -> None:
        """Read a batch as the loader does: what it has read is durable elsewhere, with its place."""
        try:
            batch = self.reader.read(0, self.checkpoint, self.rng.choice([1, 500, AMPLE]))
        except MachineDownError:
            return
        for record in batch:
            if record.number <= self.checkpoint:
                raise Violation("a number came back")
            self.checkpoint = record.number
            self.read.append(record.payload)

    def trim(self) -> None:
        with suppress(MachineDownError):
            self.reader.trim(0, self.checkpoint)

    async def finish(self) -> None:
        """On a machine that works again: one more group, then read to the end."""
        await self.append_group(self.open_writer(AMPLE))
        before = -1
        while before < self.checkpoint:
            before = self.checkpoint
            self.load()

    def check(self) -> None:
        read = set(self.read)
        if len(read) != len(self.read):
            raise Violation("a record was read twice")
        if not read <= self.issued.keys():
            raise Violation("a record was invented or changed")
        if missing := [payload[:6] for payload in self.acknowledged if payload not in read]:
            raise Violation(f"acknowledged records are lost: {missing}")
        if self.reader.quarantined() > len(self.issued) - len(read):
            raise Violation("more was reported damaged than is missing")
        if not read.isdisjoint(self.refused):
            raise Violation("a refused record was stored")
        order = [self.issued[payload] for payload in self.read]
        if order != sorted(order):
            raise Violation("records are out of order")


def first_violation(schedules, disk_class=SimulatedDisk, new_mark=None, first_seed=0):
    """Run schedules until one goes wrong; return its seed and what was wrong."""

    async def run():
        for seed in range(first_seed, first_seed + schedules):
            try:
                await Schedule(seed, disk_class, new_mark).run()
            except Exception as error:  # noqa: BLE001 - any exception of the log is a finding too
                return seed, repr(error)
        return None

    with capture_logs():
        return asyncio.run(run())


@pytest.mark.parametrize("part", range(4))
def test_no_schedule_loses_repeats_or_invents_a_record(part):
    schedules = SCHEDULES // 4
    assert first_violation(schedules, first_seed=part * schedules) is None


class AcknowledgesBeforeSync(SimulatedDisk):
    def sync(self, descriptor):
        self.before_sync()
        self.call()


class SyncsNoDirectory(SimulatedDisk):
    def sync_directory(self, path):
        self.call()


class IgnoresShortWrites(SimulatedDisk):
    def pwritev(self, descriptor, buffers, offset):
        super().pwritev(descriptor, buffers, offset)
        return sum(map(len, buffers))


class TriesSyncsAgain(SimulatedDisk):
    def sync(self, descriptor):
        try:
            super().sync(descriptor)
        except MachineDownError:
            raise
        except OSError:
            self.sync(descriptor)


PLANTED_DISKS = [AcknowledgesBeforeSync, SyncsNoDirectory, IgnoresShortWrites, TriesSyncsAgain]


@pytest.mark.parametrize("disk_class", PLANTED_DISKS)
def test_a_writer_that_misuses_the_disk_is_found(disk_class):
    assert first_violation(SCHEDULES_TO_FIND_A_BUG, disk_class)


def test_a_reader_that_checks_no_checksum_is_found(monkeypatch):
    monkeypatch.setattr(frames, "is_intact", lambda header, payload: True)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG)


def test_a_writer_that_uses_numbers_again_is_found(monkeypatch):
    monkeypatch.setattr(tail, "NUMBER_GAP", 1)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG)


def test_a_writer_that_appends_behind_a_torn_tail_is_found(monkeypatch):
    begin = tail.Tail.__init__

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

    monkeypatch.setattr(tail.Tail, "__init__", begin_in_the_newest_segment)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG)


def test_a_reader_that_takes_stale_frames_for_current_is_found(monkeypatch):
    frame_at = segments.SegmentFile.frame_at

    def frame_of_any_age_at(self, offset, above):
        self._segment = segments.Segment(0, self._segment.mark)
        return frame_at(self, offset, 0)

    monkeypatch.setattr(segments.SegmentFile, "frame_at", frame_of_any_age_at)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG, new_mark=lambda: b"all same")


def test_a_reader_that_trims_what_was_not_read_is_found(monkeypatch):
    monkeypatch.setattr(SegmentLogReader, "_is_spent", lambda *_: True)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG)


def test_a_writer_that_goes_on_after_a_failure_is_found(monkeypatch):
    monkeypatch.setattr(SegmentLogWriter, "_refuse_everything", lambda self, reason: None)
    assert first_violation(SCHEDULES_TO_FIND_A_BUG)
