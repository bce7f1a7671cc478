"""The segment log on a disk that tears writes and flips bits, and among foreign bytes.

Proves: damaged-log, lost-log, one-service.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mauve.stores.data_directory import HeldError
from mauve.stores.disk import LOCAL_DISK, Disk
from mauve.stores.log import RECORD_NUMBER_MAX, Lost
from mauve.stores.log.files import reader as reader_module
from mauve.stores.log.files import segments
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.segments import NUMBER_GAP, POOL_SEGMENTS_MAX, continue_after, ends_before
from mauve.stores.log.files.writer import SegmentLogWriter
from support.segment_log import BYTES_MAX, LARGE, SEGMENT_BYTES, Seconds, a_writer, append_all, read_all, segment_paths

# Each takes a frame of 48 bytes, the last 3 of which are padding.
SMALL = [b"small record number %d" % number for number in range(7)]
FRAME_BYTES = segments.frame_bytes(len(SMALL[0]))
PADDING_BYTES = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def write_at(path, offset, content):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


class TestDeletedFiles:
    def test_records_deleted_before_they_were_loaded_are_counted(self, root):
        append_all(root, LARGE)
        reader = SegmentLogReader(root)
        position = reader.read(0, 0, 2000)[-1].number
        assert reader.lost_after({0: position}) == {}
        for path in segment_paths(root)[:3]:
            path.unlink()
        first = reader.read(0, position, BYTES_MAX)[0].number
        assert reader.lost_after({0: position}) == {0: Lost(first - position - 1, first - 1)}
        assert reader.lost_after({0: first - 1}) == {}

    def test_trimmed_records_and_restarts_of_the_writer_are_not_a_loss(self, root):
        position = 0
        for _ in range(3):
            append_all(root, LARGE)
            reader = SegmentLogReader(root)
            while found := reader.read(0, position, 3000):
                assert reader.lost_after({0: position}) == {}
                position = found[-1].number
                reader.trim(0, position)
            assert reader.lost_after({0: position}) == {}

    def test_a_stream_whose_files_end_before_a_loaded_record_continues_after_it(self, root):
        append_all(root, LARGE)
        last = SegmentLogReader(root).read(0, 0, BYTES_MAX)[-1].number
        assert not ends_before(LOCAL_DISK, root / "000", last)
        segment_paths(root)[-1].unlink()
        assert ends_before(LOCAL_DISK, root / "000", last)
        continue_after(LOCAL_DISK, root, 0, last)
        assert not ends_before(LOCAL_DISK, root / "000", last)
        append_all(root, SMALL)
        found = SegmentLogReader(root).read(0, last, BYTES_MAX)
        assert [record.payload for record in found] == SMALL
        assert found[0].number > last + NUMBER_GAP


class TestTornTail:
    @pytest.mark.parametrize(
        "rest", [bytes(FRAME_BYTES), b"\xa5" * FRAME_BYTES, b""], ids=["zeros", "garbage", "short"]
    )
    def test_at_every_byte_of_the_last_frame_the_records_before_it_are_kept(self, root, rest):
        append_all(root, SMALL)
        (path,) = segment_paths(root)
        whole = path.read_bytes()
        start = (len(SMALL) - 1) * FRAME_BYTES
        for cut in range(start, start + FRAME_BYTES - PADDING_BYTES):
            path.write_bytes(whole[:cut] + rest[cut - start :])
            reader = SegmentLogReader(root)
            assert read_all(reader) == SMALL[:-1]
            assert reader.quarantined() == 0

    @pytest.mark.parametrize("cut", range(0, FRAME_BYTES - PADDING_BYTES, 3))
    def test_the_next_writer_continues_after_a_torn_tail_and_reports_nothing(self, root, cut):
        append_all(root, SMALL)
        (path,) = segment_paths(root)
        write_at(path, (len(SMALL) - 1) * FRAME_BYTES + cut, bytes(FRAME_BYTES - cut))
        append_all(root, [b"later"])
        reader = SegmentLogReader(root)
        assert read_all(reader) == [*SMALL[:-1], b"later"]
        assert reader.quarantined() == 0

    def test_the_next_writer_reuses_no_number_not_even_a_torn_one(self, root):
        append_all(root, SMALL)
        torn = SegmentLogReader(root).read(0, 0, BYTES_MAX)[-1].number
        (path,) = segment_paths(root)
        write_at(path, (len(SMALL) - 1) * FRAME_BYTES, bytes(FRAME_BYTES))
        append_all(root, [b"later"])
        assert SegmentLogReader(root).read(0, torn, BYTES_MAX)[0].payload == b"later"

    def test_the_number_of_a_frame_after_a_torn_one_is_not_reused(self, root):
        append_all(root, SMALL)
        (path,) = segment_paths(root)
        write_at(path, 2 * FRAME_BYTES, bytes(4 * FRAME_BYTES))
        append_all(root, [b"later"])
        reader = SegmentLogReader(root)
        assert read_all(reader) == [*SMALL[:2], SMALL[6], b"later"]
        assert reader.quarantined() == 4


class TestBitFlip:
    @pytest.mark.parametrize("offset", range(FRAME_BYTES - PADDING_BYTES))
    def test_a_flip_in_any_byte_of_a_complete_segment_costs_only_that_record(self, root, offset):
        append_all(root, SMALL)
        append_all(root, [b"next segment"])
        path = segment_paths(root)[0]
        place = 3 * FRAME_BYTES + offset
        write_at(path, place, bytes([path.read_bytes()[place] ^ 1 << offset % 8]))
        reader = SegmentLogReader(root)
        with capture_logs() as logs:
            assert read_all(reader) == [*SMALL[:3], *SMALL[4:], b"next segment"]
            assert read_all(reader) == [*SMALL[:3], *SMALL[4:], b"next segment"]
        assert reader.quarantined() == 1
        (line,) = logs
        assert (line["event"], line["stream"], line["offset"]) == ("log_record_damaged", 0, 3 * FRAME_BYTES)
        (kept,) = (root / "000/quarantine").iterdir()
        assert kept.read_bytes() == path.read_bytes()[3 * FRAME_BYTES : 4 * FRAME_BYTES]

    @pytest.mark.parametrize("offset", range(FRAME_BYTES - PADDING_BYTES))
    def test_a_flip_in_any_byte_of_the_segment_being_written_blocks_for_a_second(self, root, offset):
        append_all(root, SMALL)
        (path,) = segment_paths(root)
        place = 3 * FRAME_BYTES + offset
        write_at(path, place, bytes([path.read_bytes()[place] ^ 1 << offset % 8]))
        clock = Seconds()
        reader = SegmentLogReader(root, monotonic=clock)
        before = reader.read(0, 0, BYTES_MAX)
        assert [record.payload for record in before] == SMALL[:3]
        clock.now += 0.9
        assert reader.read(0, before[-1].number, BYTES_MAX) == []
        clock.now += 0.2
        behind = reader.read(0, before[-1].number, BYTES_MAX)
        assert [record.payload for record in behind] == SMALL[4:]
        assert reader.quarantined() == 1

    def test_a_flip_in_the_last_record_of_a_full_segment_is_reported_too(self, root):
        append_all(root, LARGE[:9])
        write_at(segment_paths(root)[0], SEGMENT_BYTES - 1, b"!")
        reader = SegmentLogReader(root)
        assert read_all(reader) == [*LARGE[:3], *LARGE[4:9]]
        assert reader.quarantined() == 1

    def test_damage_across_many_records_counts_each(self, root):
        append_all(root, SMALL)
        append_all(root, [b"next segment"])
        write_at(segment_paths(root)[0], 10, b"\xff" * (3 * FRAME_BYTES))
        reader = SegmentLogReader(root)
        assert read_all(reader) == [*SMALL[4:], b"next segment"]
        assert reader.quarantined() == 4

    def test_the_number_of_quarantined_copies_is_limited(self, root, monkeypatch):
        monkeypatch.setattr(reader_module, "FILES_MAX", 2)
        append_all(root, SMALL)
        append_all(root, [b"next segment"])
        for index in (1, 3, 5):
            write_at(segment_paths(root)[0], index * FRAME_BYTES + 30, b"!")
        reader = SegmentLogReader(root)
        assert read_all(reader) == [SMALL[0], SMALL[2], SMALL[4], SMALL[6], b"next segment"]
        assert reader.quarantined() == 3
        assert len(list((root / "000/quarantine").iterdir())) == 2

    def test_a_slow_writer_is_not_mistaken_for_damage(self, root):
        """The search finds a frame that was just written; by then the frame before it is there too."""
        append_all(root, SMALL)
        (path,) = segment_paths(root)
        whole = path.read_bytes()
        write_at(path, 3 * FRAME_BYTES, bytes(4 * FRAME_BYTES))

        class LandingDisk(Disk):
            reads = 0

            def pread(self, descriptor, bytes_max, offset):
                content = super().pread(descriptor, bytes_max, offset)
                self.reads += 1
                if self.reads == 2:
                    path.write_bytes(whole)
                return content

        clock = Seconds()
        reader = SegmentLogReader(root, disk=LandingDisk(), monotonic=clock)
        after = reader.read(0, 0, BYTES_MAX)[-1].number
        clock.now += 5
        assert [record.payload for record in reader.read(0, after, BYTES_MAX)] == SMALL[3:]
        assert reader.quarantined() == 0


class TestForeignBytes:
    def test_records_of_an_earlier_use_of_a_segment_are_never_returned(self, root):
        reader = SegmentLogReader(root)
        append_all(root, [b"old %d" % number * 20 for number in range(60)])
        reader.trim(0, RECORD_NUMBER_MAX)
        assert list((root / "000/spare").iterdir())
        for turn in range(4):
            append_all(root, [b"new %d" % turn])
        read = read_all(reader)
        assert read[-4:] == [b"new %d" % turn for turn in range(4)]
        assert read == read_all(SegmentLogReader(root))
        assert len([payload for payload in read if payload.startswith(b"old")]) < 60
        assert reader.quarantined() == 0

    def test_even_with_the_same_mark_older_numbers_are_not_current(self, root):
        mark = {"new_mark": lambda: b"all same"}
        append_all(root, SMALL, **mark)
        append_all(root, [b"later"], **mark)
        old, new = segment_paths(root)
        write_at(new, segments.frame_bytes(5), old.read_bytes()[: 7 * FRAME_BYTES])
        append_all(root, [b"latest"], **mark)
        assert read_all(SegmentLogReader(root)) == [*SMALL, b"later", b"latest"]

    def test_a_payload_that_looks_like_a_frame_is_not_one_even_after_damage(self, root):
        forged = segments.encode_header(b"guessed!", RECORD_NUMBER_MAX, 6, segments.checksum_of_payload([b"forged"]))
        append_all(root, [forged + b"forged  ", b"honest"], new_mark=lambda: b"its mark")
        write_at(segment_paths(root)[0], 0, b"?")
        append_all(root, [b"later"])
        assert read_all(SegmentLogReader(root)) == [b"honest", b"later"]

    @pytest.mark.parametrize("content", [b"", b"\x00" * 8, bytes(SEGMENT_BYTES), b"\xff" * 5000, b"short"])
    def test_a_segment_without_a_record_is_skipped(self, root, content):
        append_all(root, SMALL)
        number = SegmentLogReader(root).read(0, 0, BYTES_MAX)[-1].number + 5
        (root / "000" / f"{number:014d}-0123456789abcdef.segment").write_bytes(content)
        assert read_all(SegmentLogReader(root)) == SMALL
        append_all(root, [b"later"])
        assert read_all(SegmentLogReader(root)) == [*SMALL, b"later"]

    def test_files_with_foreign_names_are_not_touched(self, root):
        append_all(root, SMALL)
        foreign = ["000/notes.txt", "000/99999999999999-0123456789abcdef.segment", "000/spare/notes", "readme", "9"]
        for name in foreign:
            (root / name).write_bytes(b"?")
        (root / "001").mkdir()
        (root / "999").mkdir()
        append_all(root, [b"later"])
        reader = SegmentLogReader(root)
        assert reader.streams() == [0, 1]
        assert read_all(reader) == [*SMALL, b"later"]
        assert all((root / name).exists() for name in foreign)

    def test_pooled_files_of_another_size_are_not_used(self, root):
        append_all(root, [])
        pooled = root / "000/spare/new.segment"
        pooled.write_bytes(b"half made")
        append_all(root, SMALL)
        assert segment_paths(root)[0].stat().st_size == SEGMENT_BYTES
        assert pooled.stat().st_size == SEGMENT_BYTES


def test_a_second_writer_of_a_stream_is_refused(root):
    async def main():
        writer = a_writer(root)
        with pytest.raises(HeldError, match="already has a writer"):
            a_writer(root)
        await writer.append([b"undisturbed"])
        await writer.close()
        await a_writer(root).close()

    asyncio.run(main())
    assert read_all(SegmentLogReader(root)) == [b"undisturbed"]


@pytest.mark.parametrize("options", [{"stream": 256}, {"stream": -1}, {"budget_bytes": SEGMENT_BYTES}])
def test_a_writer_that_cannot_work_is_refused(root, options):
    with pytest.raises(ValueError, match=r"numbered|budget"):
        SegmentLogWriter(root, **{"stream": 0, "segment_bytes": SEGMENT_BYTES} | options)


def test_few_files_are_pooled_and_the_newest_segment_is_always_kept(root):
    append_all(root, LARGE)
    reader = SegmentLogReader(root)
    assert len(segment_paths(root)) == 10
    reader.trim(0, RECORD_NUMBER_MAX)
    assert len(segment_paths(root)) == 1
    assert len(list((root / "000/spare").iterdir())) == POOL_SEGMENTS_MAX
    assert reader.stored_bytes() == SEGMENT_BYTES


def test_numbers_are_never_reused_however_often_the_writer_crashes(root, tmp_path):
    """After each crash the newest segment has lost its last records, which were read before."""
    reader = SegmentLogReader(root)
    seen = []
    after = 0
    for turn in range(6):
        append_all(root, [b"%d/%d" % (turn, number) for number in range(4)])
        batch = reader.read(0, after, BYTES_MAX)
        after = batch[-1].number
        seen += [record.number for record in batch]
        newest = segment_paths(root)[-1]
        write_at(newest, turn % 3 * segments.frame_bytes(3), bytes(SEGMENT_BYTES))
        with newest.open("r+b") as file:
            os.truncate(file.fileno(), SEGMENT_BYTES)
    assert len(seen) == 24
    assert seen == sorted(set(seen))


def test_a_copied_log_reads_the_same(root, tmp_path):
    append_all(root, SMALL)
    shutil.copytree(root, tmp_path / "copy")
    assert read_all(SegmentLogReader(tmp_path / "copy")) == SMALL
