"""The segment log on a disk that fails or is full.

Proves: failed-write, full-disk.
"""

import asyncio
import errno
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mauve.stores.disk import Disk, write_all
from mauve.stores.log import RECORD_NUMBER_MAX, LogFailedError, LogFullError
from mauve.stores.log.files import writer as writer_module
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import one_thread
from support.segment_log import BYTES_MAX, LARGE, SEGMENT_BYTES, Seconds, a_writer, append_all, read_all, segment_paths


class FaultyDisk(Disk):
    """A disk that fails on demand, once for every number in the list."""

    def __init__(self) -> None:
        self.syncs: list[OSError] = []
        self.writes: list[OSError | int] = []
        self.written: list[int] = []
        self.renames: list[OSError] = []

    def sync(self, descriptor):
        if self.syncs:
            raise self.syncs.pop(0)
        super().sync(descriptor)

    def rename(self, path, target):
        if self.renames:
            raise self.renames.pop(0)
        super().rename(path, target)

    def pwritev(self, descriptor, buffers, offset):
        assert len(buffers) <= 1024
        fault = self.writes.pop(0) if self.writes else None
        if isinstance(fault, OSError):
            raise fault
        if fault is not None:
            buffers = [b"".join(buffers)[:fault]]
        written = super().pwritev(descriptor, buffers, offset)
        self.written.append(written)
        return written


class AtOnce(Executor):
    """Runs each task before it returns."""

    def submit(self, work, /, *arguments):
        done = Future()
        done.set_result(work(*arguments))
        return done


def spares_at_once():
    """Return the threads of a writer that prepares no segment in parallel, so that faults only affect its main work."""
    flusher_and_preparer = iter([one_thread(), AtOnce()])
    return lambda: next(flusher_and_preparer)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


class TestFailure:
    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
    @pytest.mark.parametrize("call", ["syncs", "writes"])
    def test_a_failed_write_or_sync_refuses_its_group_and_all_later_ones(self, root, call, code):
        async def main():
            disk = FaultyDisk()
            writer = a_writer(root, disk=disk, new_thread=spares_at_once())
            await asyncio.gather(*(writer.append([b"%d" % number]) for number in range(5)))
            assert not writer.has_failed
            getattr(disk, call).append(OSError(code, "broken"))
            late = [asyncio.ensure_future(writer.append([b"late"])) for _ in range(5)]
            for outcome in await asyncio.gather(*late, return_exceptions=True):
                assert isinstance(outcome, LogFailedError)
            with pytest.raises(LogFailedError, match="broken"):
                await writer.append([b"later"])
            assert writer.has_failed
            await writer.close()

        with capture_logs() as logs:
            asyncio.run(main())
        assert [line["event"] for line in logs] == ["log_writer_failed"]
        append_all(root, [b"recovered"])
        read = read_all(SegmentLogReader(root))
        assert read[:5] == [b"%d" % number for number in range(5)]
        assert read[5:] in ([b"recovered"], [b"late", b"recovered"])

    def test_a_failed_directory_sync_is_final_too(self, root):
        class OwnDisk(Disk):
            fails = False

            def sync_directory(self, path):
                if self.fails:
                    raise OSError(errno.ENOSPC, "no space for the name")
                super().sync_directory(path)

        async def main():
            disk = OwnDisk()
            writer = a_writer(root, disk=disk)
            disk.fails = True
            with pytest.raises(LogFailedError):
                await writer.append([b"unknown"])
            disk.fails = False
            with pytest.raises(LogFailedError):
                await writer.append([b"refused"])
            await writer.close()

        asyncio.run(main())
        append_all(root, [b"recovered"])
        assert read_all(SegmentLogReader(root)) == [b"recovered"]

    @pytest.mark.parametrize("size", [1, 7, 24, 1000])
    def test_short_writes_are_completed(self, root, size):
        async def main():
            disk = FaultyDisk()
            writer = a_writer(root, disk=disk)
            disk.writes = [size, size, 3, size]
            await asyncio.gather(*(writer.append([b"%d" % number, b"-" * 90]) for number in range(30)))
            await writer.close()

        asyncio.run(main())
        assert read_all(SegmentLogReader(root)) == [b"%d" % number + b"-" * 90 for number in range(30)]

    def test_a_disk_that_writes_nothing_fails_without_an_endless_loop(self):
        class OwnDisk(Disk):
            def pwritev(self, descriptor, buffers, offset):
                return 0

        with pytest.raises(OSError, match="took nothing"):
            write_all(OwnDisk(), 0, [b"x"], 0)

    def test_more_pieces_than_one_call_accepts_are_written_in_several(self, root, monkeypatch):
        monkeypatch.setattr(writer_module, "JOINED_PIECE_BYTES_MAX", 0)

        async def main():
            disk = FaultyDisk()
            writer = a_writer(root, disk=disk, segment_bytes=2**20, new_thread=spares_at_once())
            disk.written.clear()
            disk.writes = [100, 5000, 1]
            await asyncio.gather(*(writer.append([b"%d" % number, b"a", b"", b"b"]) for number in range(3000)))
            await writer.close()
            assert len(disk.written) > 10

        asyncio.run(main())
        assert read_all(SegmentLogReader(root)) == [b"%dab" % number for number in range(3000)]

    def test_a_stream_out_of_numbers_refuses(self, root):
        (root / "000").mkdir(parents=True)
        (root / "000" / f"{RECORD_NUMBER_MAX - 5:014d}-0123456789abcdef.segment").write_bytes(b"")
        with pytest.raises(LogFailedError, match="numbers"), capture_logs():
            append_all(root, [b"one too many"])


class TestFull:
    def test_an_append_beyond_the_budget_is_refused_until_the_reader_has_trimmed(self, root):
        async def main():
            clock = Seconds()
            writer = a_writer(root, budget_bytes=3 * SEGMENT_BYTES, monotonic=clock)
            stored = await append_until_full(writer)
            assert len(segment_paths(root)) == 3
            reader = SegmentLogReader(root)
            first = reader.read(0, 0, BYTES_MAX)
            reader.trim(0, first[-1].number)
            with pytest.raises(LogFullError):
                await writer.append([b"x" * 1000])  # It checks again after a while, not at once.
            clock.now += 0.1
            await writer.append([b"x" * 1000])
            await writer.close()
            assert [record.payload for record in first] == stored
            assert reader.read(0, first[-1].number, BYTES_MAX)[0].payload == b"x" * 1000

        asyncio.run(main())

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
    def test_a_disk_without_space_for_a_segment_refuses_until_there_is_some(self, root, code):
        async def main():
            clock, disk = Seconds(), FaultyDisk()
            disk.writes = [OSError(code, "full")] * 2
            writer = a_writer(root, disk=disk, monotonic=clock)
            with pytest.raises(LogFullError):
                await writer.append([b"refused"])
            assert not writer.has_failed
            assert list((root / "000/spare").iterdir()) == []  # Nothing unfinished takes up space.
            clock.now += 0.1
            await writer.append([b"stored"])
            await writer.close()

        asyncio.run(main())
        assert read_all(SegmentLogReader(root)) == [b"stored"]

    def test_a_full_disk_at_the_rename_is_not_a_failure_either(self, root):
        async def main():
            clock, disk = Seconds(), FaultyDisk()
            writer = a_writer(root, disk=disk, monotonic=clock)
            disk.renames = [OSError(errno.ENOSPC, "full")]
            with pytest.raises(LogFullError):
                await writer.append([b"refused"])
            clock.now += 0.1
            await writer.append([b"stored"])
            await writer.close()

        asyncio.run(main())
        assert read_all(SegmentLogReader(root)) == [b"stored"]

    @pytest.mark.parametrize("call", ["writes", "renames"])
    def test_a_full_log_is_unavailable_until_there_is_room_even_without_appends(self, root, call):
        async def main():
            clock, disk = Seconds(), FaultyDisk()
            writer = a_writer(root, disk=disk, monotonic=clock, new_thread=spares_at_once())
            for spare in (root / "000/spare").iterdir() if call == "writes" else ():
                spare.unlink()
            setattr(disk, call, [OSError(errno.ENOSPC, "full")])
            assert writer.is_available
            with pytest.raises(LogFullError):
                await writer.append([b"refused"])
            assert not writer.is_available
            disk.writes = [OSError(errno.ENOSPC, "full")] if call == "writes" else []
            clock.now += 0.1
            assert writer.is_available is (call == "renames"), "it looks for room"
            clock.now += 0.1
            assert writer.is_available
            await writer.append([b"stored"])
            assert writer.is_available
            await writer.close()
            assert not writer.is_available

        asyncio.run(main())
        assert read_all(SegmentLogReader(root)) == [b"stored"]

    def test_a_full_log_is_looked_at_once_at_a_time(self, root):
        class Busy(ThreadPoolExecutor):
            """Accepts work and begins none."""

            def submit(self, work, /, *arguments):
                waiting.append(work)

        async def main():
            clock = Seconds()
            threads = iter([ThreadPoolExecutor(1), Busy(1)])
            writer = a_writer(root, budget_bytes=3 * SEGMENT_BYTES, monotonic=clock, new_thread=lambda: next(threads))
            await append_until_full(writer)
            waiting.clear()
            for _ in range(5):
                clock.now += 1
                assert not writer.is_available
            (look,) = waiting
            look()
            clock.now += 1
            assert not writer.is_available
            assert len(waiting) == 2
            await writer.close()

        waiting = []
        asyncio.run(main())

    def test_a_log_that_reached_its_budget_is_unavailable_until_it_is_trimmed(self, root):
        async def main():
            clock = Seconds()
            writer = a_writer(root, budget_bytes=3 * SEGMENT_BYTES, monotonic=clock, new_thread=spares_at_once())
            await append_until_full(writer)
            clock.now += 1
            assert not writer.is_available
            reader = SegmentLogReader(root)
            reader.trim(0, reader.read(0, 0, BYTES_MAX)[-1].number)
            clock.now += 1
            assert writer.is_available
            await writer.append([b"x" * 1000])
            await writer.close()

        asyncio.run(main())

    def test_records_that_fit_before_the_log_was_full_are_acknowledged(self, root):
        async def main():
            writer = a_writer(root, budget_bytes=2 * SEGMENT_BYTES)
            outcomes = await asyncio.gather(*(writer.append([p]) for p in LARGE), return_exceptions=True)
            await writer.close()
            assert outcomes[:8] == list(range(outcomes[0], outcomes[0] + 8))
            assert all(isinstance(outcome, LogFullError) for outcome in outcomes[8:])
            assert read_all(SegmentLogReader(root)) == LARGE[:8]

        asyncio.run(main())

    def test_a_full_log_can_be_opened_and_read(self, root):
        async def main():
            writer = a_writer(root, budget_bytes=2 * SEGMENT_BYTES)
            stored = await append_until_full(writer)
            await writer.close()
            clock = Seconds()
            writer = a_writer(root, budget_bytes=2 * SEGMENT_BYTES, monotonic=clock)
            with pytest.raises(LogFullError):
                await writer.append([b"refused"])
            reader = SegmentLogReader(root)
            records = reader.read(0, 0, BYTES_MAX)
            assert [record.payload for record in records] == stored
            reader.trim(0, records[-1].number)
            clock.now += 0.1
            await writer.append([b"again"])
            await writer.close()
            assert [record.payload for record in reader.read(0, records[-1].number, BYTES_MAX)] == [b"again"]

        asyncio.run(main())


async def append_until_full(writer):
    stored = []
    while True:
        try:
            await writer.append([LARGE[len(stored)]])
        except LogFullError:
            return stored
        stored.append(LARGE[len(stored)])
