"""What every log promises."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mauve.core.secret import Secret
from mauve.stores.log import LogFailedError, number_of, stream_of
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.stores.log.nats import log_writer
from mauve.stores.log.nats.log_reader import NatsLogReader
from mauve.stores.log.nats.log_writer import NatsLogWriter
from mauve.stores.log.nats.servers import StreamPlan, prepare_streams
from mauve.stores.log.nats.streams import STREAMS
from support.nats_streams import delete_streams
from support.service import PATIENCE_S

SEGMENT_BYTES = 64 * 1024
BYTES_MAX = 2**30
KILLED_WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from mauve.stores.log.files.writer import SegmentLogWriter

async def main():
    writer = SegmentLogWriter(Path(sys.argv[1]), 0, segment_bytes=65536)
    for number in range(int(sys.argv[2])):
        await writer.append([b"%d" % number])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
KILLED_NATS_WRITER = """
import asyncio, os, signal, sys
from mauve.core.secret import Secret
from mauve.stores.log.nats import log_writer

log_writer._ATTEMPT_S = log_writer.WAIT_S_MAX = 240

async def main():
    writer = log_writer.NatsLogWriter(Secret(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        await writer.append([b"%d" % number])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


class SegmentLog:
    """The embedded engine: the same directory opened repeatedly, as several processes do."""

    first, second = 0, 1
    empty_streams = ()
    least_bytes = SEGMENT_BYTES  # The newest segment is never trimmed.

    def __init__(self, folder: Path) -> None:
        self._root = folder / "log"

    def check_backlog(self, waiting, left, records):
        """Check the size of the records that wait, given the size of their payloads."""
        assert left <= waiting <= left + 32 * records

    def writer(self, stream=None):
        return SegmentLogWriter(self._root, stream or self.first, segment_bytes=SEGMENT_BYTES)

    def reader(self):
        return SegmentLogReader(self._root)

    def look(self, stream=0):
        return partial(SegmentLogReader(self._root).records, stream)

    def close(self):
        pass

    def append_and_be_killed(self, records):
        script = [sys.executable, "-c", KILLED_WRITER, str(self._root), str(records)]
        assert subprocess.run(script, check=False).returncode == -9


class NatsLog:
    """New streams on a real server. What several of them do is tested elsewhere."""

    first, second = STREAMS[0], STREAMS[1]
    empty_streams = STREAMS
    least_bytes = 0

    def __init__(self, servers) -> None:
        self._url = Secret(servers.url)
        self._opened = []
        delete_streams(servers)
        prepare_streams(self._url, servers.count, StreamPlan("an installation", 2**30, {}))

    def check_backlog(self, waiting, left, records):
        assert (waiting > 0) == (records > 0)
        assert (waiting > 0) == (left > 0), "what waits is stored compressed"

    def writer(self, stream=None):
        return NatsLogWriter(self._url, first=STREAMS.index(stream or self.first))

    def reader(self):
        self._opened.append(NatsLogReader(self._url, trim_every_s=0))
        return self._opened[-1]

    def look(self, stream=None):
        return partial(self.reader().records, self.first if stream is None else stream)

    def append_and_be_killed(self, records):
        script = [sys.executable, "-c", KILLED_NATS_WRITER, self._url.reveal(), str(records)]
        assert subprocess.run(script, check=False).returncode == -9

    def close(self):
        for reader in self._opened:
            reader.close()


@pytest.fixture(scope="session")
def log_servers():
    from support.nats import Nats  # noqa: PLC0415 - its servers are not needed for the embedded engine

    with Nats(1) as servers:
        yield servers


@pytest.fixture(params=["segments", pytest.param("nats", marks=pytest.mark.servers)])
def open_log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SegmentLog | NatsLog]:
    for limit in ("_ATTEMPT_S", "WAIT_S_MAX"):  # On a slow machine, too, a writer stays with its stream.
        monkeypatch.setattr(log_writer, limit, PATIENCE_S)
    embedded = request.param == "segments"
    log = SegmentLog(tmp_path) if embedded else NatsLog(request.getfixturevalue("log_servers"))
    yield log
    log.close()


def append_all(log, payloads, stream=None):
    async def main():
        writer = log.writer(stream)
        for payload in payloads:
            await writer.append([payload])
        await writer.close()

    asyncio.run(main())


def payloads_of(records):
    return [record.payload for record in records]


def drain(log, reader, stream=None, bytes_max=BYTES_MAX):
    """Read to the end, batch by batch."""
    records, after = [], 0
    while batch := reader.read(log.first if stream is None else stream, after, bytes_max):
        records += batch
        after = batch[-1].number
    return records


def test_an_empty_log_returns_nothing(open_log):
    reader = open_log.reader()
    assert reader.streams() == list(open_log.empty_streams)
    assert reader.read(open_log.first, 0, BYTES_MAX) == []
    reader.trim(open_log.first, 10)
    assert (reader.stored_bytes(), reader.backlog_bytes({}), reader.quarantined()) == (0, 0, 0)


def test_a_log_that_was_only_opened_returns_nothing(open_log):
    append_all(open_log, [])
    reader = open_log.reader()
    assert reader.read(open_log.first, 0, BYTES_MAX) == []


def test_records_are_returned_whole_and_in_order_with_increasing_numbers(open_log):
    payloads = [b"", b"a", b"\x00" * 7, b"a" * 8, bytes(range(256)) * 9]
    append_all(open_log, payloads)
    records = open_log.reader().read(open_log.first, 0, BYTES_MAX)
    assert payloads_of(records) == payloads
    numbers = [record.number for record in records]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


def test_the_parts_of_a_record_are_written_in_sequence(open_log):
    async def main():
        writer = open_log.writer()
        await writer.append([b"head", b"", b"body", b"tail"])
        await writer.append([])
        await writer.close()

    asyncio.run(main())
    assert payloads_of(open_log.reader().read(open_log.first, 0, BYTES_MAX)) == [b"headbodytail", b""]


def test_two_hundred_concurrent_appends_keep_their_order(open_log):
    async def main():
        writer = open_log.writer()
        called = []

        async def append(name):
            for turn in range(20):
                payload = b"%d/%d" % (name, turn)
                called.append(payload)
                await writer.append([payload])

        await asyncio.gather(*(append(name) for name in range(200)))
        await writer.close()
        return called

    called = asyncio.run(main())
    assert payloads_of(drain(open_log, open_log.reader())) == called


def test_a_record_is_readable_when_append_returns(open_log):
    async def main():
        writer, reader = open_log.writer(), open_log.reader()
        after = 0
        for turn in range(300):
            await writer.append([b"%d" % turn * 100])
            (record,) = reader.read(open_log.first, after, BYTES_MAX)
            assert record.payload == b"%d" % turn * 100
            assert record.number > after
            after = record.number
            assert reader.read(open_log.first, after, BYTES_MAX) == []
        await writer.close()

    asyncio.run(main())


def test_the_last_number_separates_the_records_of_now_from_later_ones(open_log):
    reader = open_log.reader()
    for turn in range(3):
        before = reader.last_number(open_log.first)
        append_all(open_log, [b"%d" % turn] * 70)
        new = [record.number for record in drain(open_log, reader) if record.number > before]
        assert len(new) == 70
        assert new[-1] <= reader.last_number(open_log.first)
        reader.trim(open_log.first, before)
        assert new[-1] <= reader.last_number(open_log.first), "whatever was trimmed"


def test_append_returns_the_place_at_which_a_record_is_read(open_log):
    async def main():
        writer = open_log.writer(open_log.second)
        places = [await writer.append([b"one"])]
        places += await asyncio.gather(*(writer.append([bytes(20_000), b"%d" % part]) for part in range(20)))
        await writer.close()
        return places

    places = asyncio.run(main())
    assert {stream_of(place) for place in places} == {open_log.second}
    assert [record.number for record in drain(open_log, open_log.reader(), open_log.second)] == [
        number_of(place) for place in places
    ]


def test_a_writer_with_its_own_stream_tells_its_last_number(tmp_path):
    async def main():
        writer = SegmentLog(tmp_path).writer()
        before = writer.last_number()
        first, last = [number_of(await writer.append([payload])) for payload in (b"one", b"two")]
        assert before < first
        assert writer.last_number() == last
        await writer.close()

    asyncio.run(main())


def test_reading_a_stream_returns_the_records_between_two_numbers_and_changes_nothing(open_log):
    append_all(open_log, [b"%05d" % number * 100 for number in range(500)])
    append_all(open_log, [b"of the next writer"])
    append_all(open_log, [b"of another stream"], stream=open_log.second)
    records = drain(open_log, open_log.reader())
    look = open_log.look()
    assert list(look(0, records[-1].number)) == records
    for after, through in ((0, 0), (0, 200), (137, 499), (499, 500), (500, 500)):
        found = list(look(records[after].number, records[through].number))
        assert found == records[after + 1 : through + 1]
    assert drain(open_log, open_log.reader()) == records
    assert list(open_log.look(stream=7)(0, 2**46)) == []


def test_reading_a_stream_continues_while_the_loader_trims(open_log):
    append_all(open_log, [b"%05d" % number * 100 for number in range(2000)])
    reader = open_log.reader()
    records = drain(open_log, reader)
    looked = open_log.look()(0, records[-1].number)
    assert [next(looked) for _ in range(3)] == records[:3]
    reader.trim(open_log.first, records[1499].number)
    assert list(looked)[-500:] == records[1500:]


def test_acknowledged_records_survive_a_killed_writer(open_log):
    open_log.append_and_be_killed(records=2500)
    append_all(open_log, [b"later"])
    assert payloads_of(drain(open_log, open_log.reader())) == [*(b"%d" % number for number in range(2500)), b"later"]


def test_the_next_writer_continues_with_higher_numbers(open_log):
    reader = open_log.reader()
    after = 0
    for turn in range(4):
        append_all(open_log, [b"%d" % turn])
        (record,) = reader.read(open_log.first, after, BYTES_MAX)
        assert (record.number > after, record.payload) == (True, b"%d" % turn)
        after = record.number


def test_two_streams_do_not_mix(open_log):
    append_all(open_log, [b"one"], stream=open_log.first)
    reader = open_log.reader()
    assert open_log.first in reader.streams()
    append_all(open_log, [b"two", b"more"], stream=open_log.second)
    assert {open_log.first, open_log.second} <= set(reader.streams())
    assert payloads_of(reader.read(open_log.first, 0, BYTES_MAX)) == [b"one"]
    assert payloads_of(reader.read(open_log.second, 0, BYTES_MAX)) == [b"two", b"more"]


def test_a_stream_exists_once_it_has_a_writer(tmp_path):
    log = SegmentLog(tmp_path)
    append_all(log, [b"two"], stream=2)
    reader = log.reader()
    assert reader.streams() == [2]
    append_all(log, [b"seven", b"more"], stream=7)
    assert reader.streams() == [2, 7]
    assert payloads_of(reader.read(7, 0, BYTES_MAX)) == [b"seven", b"more"]


def test_a_reader_stops_before_the_limit_but_returns_at_least_one_record(open_log):
    append_all(open_log, [b"a" * 100, b"b" * 100, b"c" * 101, b"d"])
    reader = open_log.reader()
    assert payloads_of(reader.read(open_log.first, 0, 0)) == [b"a" * 100]
    first, second = reader.read(open_log.first, 0, 300)
    assert payloads_of(reader.read(open_log.first, first.number, 201)) == [b"b" * 100, b"c" * 101]
    assert payloads_of(reader.read(open_log.first, second.number, 5)) == [b"c" * 101]


def test_a_reader_may_go_back(open_log):
    payloads = [b"%d" % number * 50 for number in range(3000)]
    append_all(open_log, payloads)
    reader = open_log.reader()
    records = drain(open_log, reader, bytes_max=1000)
    assert payloads_of(records) == payloads
    for index in (0, 1500, 2998, 700):
        assert reader.read(open_log.first, records[index].number, 1) == [records[index + 1]]


def test_records_of_any_size_roll_over_into_new_segments(open_log):
    payloads = [bytes([number]) * (number * 977 % 40_000) for number in range(120)]
    append_all(open_log, payloads)
    assert payloads_of(drain(open_log, open_log.reader(), bytes_max=50_000)) == payloads


def test_a_record_above_the_limit_is_refused_without_affecting_others(open_log):
    async def main():
        writer = open_log.writer()
        await writer.append([b"before"])
        with pytest.raises(ValueError, match="above the limit"):
            await writer.append([bytes(2 * 2**20), b"1"])
        await writer.append([b"after"])
        await writer.close()

    asyncio.run(main())
    assert payloads_of(drain(open_log, open_log.reader())) == [b"before", b"after"]


def test_trimming_keeps_later_records(open_log):
    payloads = [b"%05d" % number * 100 for number in range(2000)]
    append_all(open_log, payloads)
    reader = open_log.reader()
    records = drain(open_log, reader)
    before = reader.stored_bytes()
    reader.trim(open_log.first, records[1499].number)
    assert 0 < reader.stored_bytes() < before
    for opened in (reader, open_log.reader()):
        assert opened.read(open_log.first, records[1499].number, BYTES_MAX) == records[1500:]


def test_trimming_before_reading_keeps_later_records(open_log):
    append_all(open_log, [b"%05d" % number * 100 for number in range(2000)])
    records = drain(open_log, open_log.reader())
    reader = open_log.reader()
    reader.trim(open_log.first, records[1499].number)
    assert reader.read(open_log.first, records[1499].number, BYTES_MAX) == records[1500:]


def test_trimmed_space_is_reused(open_log):
    async def main():
        writer, reader = open_log.writer(), open_log.reader()
        read, after, backlog_max = [], 0, 0
        for turn in range(400):
            await asyncio.gather(*(writer.append([b"%d/%d " % (turn, part) * 200]) for part in range(5)))
            batch = reader.read(open_log.first, after, BYTES_MAX)
            after = batch[-1].number
            read += payloads_of(batch)
            reader.trim(open_log.first, after)
            backlog_max = max(backlog_max, reader.stored_bytes())
        await writer.close()
        assert read == [b"%d/%d " % (turn, part) * 200 for turn in range(400) for part in range(5)]
        assert backlog_max <= 2 * SEGMENT_BYTES
        assert reader.quarantined() == 0

    asyncio.run(main())


def test_after_a_restart_with_everything_trimmed_the_log_continues(open_log):
    reader = open_log.reader()
    after = 0
    for turn in range(5):
        append_all(open_log, [b"%d" % turn])
        (record,) = reader.read(open_log.first, after, BYTES_MAX)
        after = record.number
        reader.trim(open_log.first, after)
    assert reader.stored_bytes() == open_log.least_bytes


def test_a_closed_writer_refuses(open_log):
    async def main():
        writer = open_log.writer()
        pending = [asyncio.ensure_future(writer.append([b"%d" % number])) for number in range(3)]
        await asyncio.sleep(0)
        await writer.close()
        await asyncio.gather(*pending)
        with pytest.raises(LogFailedError):
            await writer.append([b"late"])
        assert not writer.has_failed
        await writer.close()

    asyncio.run(main())
    assert payloads_of(drain(open_log, open_log.reader())) == [b"0", b"1", b"2"]


def test_a_caller_that_gives_up_does_not_affect_others(open_log):
    async def main():
        writer = open_log.writer()
        tasks = [asyncio.ensure_future(writer.append([b"%d" % number])) for number in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await writer.close()

    asyncio.run(main())
    read = payloads_of(drain(open_log, open_log.reader()))
    assert [payload for payload in read if payload != b"3"] == [b"%d" % n for n in range(10) if n != 3]


class TestBacklog:
    def test_it_shrinks_with_every_record_that_is_loaded_and_ends_at_zero(self, open_log):
        append_all(open_log, [b"%05d" % number * 7 for number in range(300)])
        reading = open_log.reader()
        records = drain(open_log, reading)
        for place in (0, 1, 150, 298):
            position = {open_log.first: records[place].number}
            left = sum(len(record.payload) for record in records[place + 1 :])
            for reader in (reading, open_log.reader()):
                open_log.check_backlog(reader.backlog_bytes(position), left, len(records) - place - 1)
        for reader in (reading, open_log.reader()):
            assert reader.backlog_bytes({open_log.first: records[-1].number}) == 0

    def test_it_grows_with_what_arrives_after_everything_was_loaded(self, open_log):
        async def main():
            writer, reader = open_log.writer(), open_log.reader()
            await writer.append([b"first"])
            (record,) = reader.read(open_log.first, 0, BYTES_MAX)
            assert reader.backlog_bytes({open_log.first: record.number}) == 0
            await writer.append([b"a" * 1000])
            for each in (reader, open_log.reader()):
                waiting = each.backlog_bytes({open_log.first: record.number})
                open_log.check_backlog(waiting, 1000, 1)
            await writer.close()

        asyncio.run(main())

    def test_it_covers_every_stream_and_every_segment(self, tmp_path):
        open_log = SegmentLog(tmp_path)
        payloads = [b"a" * 1000] * 400
        append_all(open_log, payloads, stream=0)
        append_all(open_log, payloads, stream=1)
        waiting = open_log.reader().backlog_bytes({})
        assert 800_000 <= waiting <= 900_000
        reader = open_log.reader()
        first = drain(open_log, reader)[-1].number
        assert waiting // 2 - 1000 <= reader.backlog_bytes({open_log.first: first}) <= waiting // 2 + 1000

    def test_large_records_are_measured_exactly(self, tmp_path):
        sizes = [1, 2 * 2**20 - 100, 5, 700_000, 2 * 2**20 - 100, 2 * 2**20 - 100, 3]

        async def main():
            writer = SegmentLogWriter(tmp_path, 0, segment_bytes=32 * 2**20)
            for size in sizes:
                await writer.append([b"x" * size])
            await writer.close()

        asyncio.run(main())
        records = drain(SegmentLog(tmp_path), SegmentLogReader(tmp_path))
        for place, record in enumerate(records):
            left = sum(sizes[place + 1 :])
            waiting = SegmentLogReader(tmp_path).backlog_bytes({0: record.number})
            assert left <= waiting <= left + 32 * (len(sizes) - place - 1)
