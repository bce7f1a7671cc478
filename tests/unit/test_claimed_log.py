"""A log in files and positions that may be another machine's."""

import asyncio

import pytest

from mauve.stores import ForeignDataError
from mauve.stores.claimed_log import ClaimedLogReader
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.stores.log.files.writer import SegmentLogWriter

BYTES_MAX = 2**20


@pytest.fixture
def files(tmp_path):
    async def write():
        writer = SegmentLogWriter(tmp_path, 0, segment_bytes=BYTES_MAX, budget_bytes=4 * BYTES_MAX)
        for number in range(3):
            await writer.append([b"%d" % number])
        await writer.close()

    asyncio.run(write())
    return SegmentLogReader(tmp_path)


def refuse():
    raise ForeignDataError("another machine")


@pytest.mark.parametrize("position", [0, 2, 3, 1000])
def test_records_of_a_machine_that_may_not_load_are_neither_returned_nor_trimmed(files, position):
    log = ClaimedLogReader(files, refuse, refuse)
    log.trim(0, position)
    with pytest.raises(ForeignDataError):
        log.read(0, position, BYTES_MAX)
    log.trim(0, position)
    assert [record.payload for record in files.read(0, 0, BYTES_MAX)] == [b"0", b"1", b"2"]


def test_the_claim_is_made_once_before_the_first_record(files):
    claims = []
    log = ClaimedLogReader(files, lambda: claims.append(1), refuse)
    assert log.read(1, 0, BYTES_MAX) == []
    assert claims == []
    first = files.read(0, 0, BYTES_MAX)[0].number
    for _ in range(3):
        assert [record.payload for record in log.read(0, first, BYTES_MAX)] == [b"1", b"2"]
    assert claims == [1]
