"""Copy the records that are not loaded yet, and blank those that are."""

import asyncio

from mauve.stores.log.files.maintenance import SegmentLogMaintenance, copy_unloaded
from mauve.stores.log.files.reader import SegmentLogReader
from support.segment_log import BYTES_MAX, LARGE, a_writer, append_all, read_all, segment_paths


def records_of(root, after=0):
    reader, records = SegmentLogReader(root), []
    while batch := reader.read(0, after, BYTES_MAX):
        records += batch
        after = batch[-1].number
    return records


def damage(path, payload):
    content = bytearray(path.read_bytes())
    place = content.index(payload)
    content[place] ^= 255
    path.write_bytes(content)


class TestCopy:
    def test_the_copy_holds_the_records_after_the_position_under_the_same_numbers(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"
        append_all(root, LARGE)
        records = records_of(root)
        position = records[17].number
        assert copy_unloaded(root, copy, {0: position}) == len(records) - 18
        assert records_of(copy, position) == records[18:]

    def test_the_copy_holds_nothing_that_was_loaded(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"
        append_all(root, [b"loaded long ago", b"still to be loaded"])
        first, _ = records_of(root)
        copy_unloaded(root, copy, {0: first.number})
        (path,) = segment_paths(copy)
        assert b"long ago" not in path.read_bytes()
        assert b"still to be" in path.read_bytes()

    def test_a_writer_to_the_copy_continues_above_every_number_even_if_it_is_empty(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"
        append_all(root, LARGE)
        last = records_of(root)[-1].number
        assert copy_unloaded(root, copy, {0: last}) == 0
        append_all(copy, [b"next"])
        (record,) = records_of(copy, last)
        assert (record.payload, record.number > last) == (b"next", True)

    def test_the_loader_reads_and_trims_the_copy_like_any_other_log(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"
        append_all(root, LARGE)
        copy_unloaded(root, copy, {})
        append_all(copy, LARGE)
        reader = SegmentLogReader(copy)
        assert read_all(reader) == LARGE + LARGE
        assert reader.quarantined() == 0
        reader.trim(0, records_of(copy)[len(LARGE) - 1].number)
        assert read_all(SegmentLogReader(copy)) == LARGE

    def test_damage_does_not_hide_later_records(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"
        append_all(root, LARGE)
        for place in (2, 38):  # in a complete segment, and in the one being written
            damage(next(path for path in segment_paths(root) if LARGE[place] in path.read_bytes()), LARGE[place])
        copy_unloaded(root, copy, {})
        assert [payload for _, payload in records_of(copy)] == [*LARGE[:2], *LARGE[3:38], LARGE[39]]

    def test_active_writers_do_not_keep_the_copy_from_ending(self, tmp_path):
        root, copy = tmp_path / "log", tmp_path / "copy"

        async def main():
            writer = a_writer(root)
            for payload in LARGE:
                await writer.append([payload])
            copying = asyncio.create_task(asyncio.to_thread(copy_unloaded, root, copy, {}))
            while not copying.done():
                await writer.append([b"more"])
            await writer.close()
            return copying.result()

        copied = asyncio.run(main())
        payloads = [payload for _, payload in records_of(copy)]
        assert payloads[: len(LARGE)] == LARGE
        assert set(payloads[len(LARGE) :]) <= {b"more"}
        assert len(payloads) == copied

    def test_without_a_log_there_is_nothing_to_copy(self, tmp_path):
        assert copy_unloaded(tmp_path / "log", tmp_path / "copy", {}) == 0


class TestBlanking:
    def blank(self, root, through):
        return SegmentLogMaintenance(root, lambda: {0: through}).blank_loaded()

    def test_loaded_records_are_gone_from_every_file_and_the_rest_is_kept(self, tmp_path):
        root = tmp_path / "log"
        append_all(root, [*LARGE, b"waits"])
        records = records_of(root)
        SegmentLogReader(root).trim(0, records[20].number)
        assert self.blank(root, records[-2].number) is True
        files = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
        assert [payload for payload in LARGE[1:] if any(payload in content for content in files)] == []
        assert records_of(root, records[-2].number) == records[-1:]
        reader = SegmentLogReader(root)
        reader.read(0, 0, BYTES_MAX)
        assert reader.quarantined() == 0, "what is blank is not damaged"

    def test_numbers_continue_above_those_used(self, tmp_path):
        root = tmp_path / "log"
        append_all(root, LARGE)
        last = records_of(root)[-1].number
        self.blank(root, last)
        append_all(root, [b"next"])
        (record,) = records_of(root, last)
        assert record.payload == b"next"

    def test_a_stream_with_a_writer_is_not_touched(self, tmp_path):
        root = tmp_path / "log"

        async def main():
            writer = a_writer(root)
            await writer.append([b"loaded"])
            is_clean = self.blank(root, 2**40)
            await writer.append([b"more"])
            await writer.close()
            return is_clean

        assert asyncio.run(main()) is False
        assert [payload for _, payload in records_of(root)] == [b"loaded", b"more"]

    def test_damaged_records_that_hold_a_name_are_deleted(self, tmp_path):
        folder = tmp_path / "log" / "000" / "quarantine"
        folder.mkdir(parents=True)
        for place, content in enumerate([b'x{"user":"ann"}', b'{"user":"bob"}', b'"j\\u00f6rg"']):
            (folder / f"{place}.damaged").write_bytes(content)
        maintenance = SegmentLogMaintenance(tmp_path / "log", dict)
        assert (
            maintenance.erase_damaged("ann"),
            maintenance.erase_damaged("jörg"),
            maintenance.erase_damaged("eve"),
        ) == (1, 1, 0)
        assert [path.name for path in folder.iterdir()] == ["1.damaged"]
