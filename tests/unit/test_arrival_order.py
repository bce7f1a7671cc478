"""The loader takes records in order of arrival, whatever their stream.

Proves: arrival-order.
"""

import pytest

from mauve.core.batch import packed_header
from mauve.load.arrival_order import ArrivalOrder, in_order
from mauve.stores.log import LogRecord
from support.clocks import ManualClock

NOW_US = ManualClock().now_us()


class Streams:
    """Streams in memory; records may arrive while one is being read."""

    def __init__(self):
        self.records: dict[int, list[LogRecord]] = {}
        self.while_reading = lambda stream: None

    def append(self, stream, at, size=100):
        records = self.records.setdefault(stream, [])
        payload = packed_header("proj", "org", at // 1000, at, 1).ljust(size, b"x")
        records.append(LogRecord(len(records) + 1, payload))

    def list(self):
        return sorted(self.records)

    def read(self, stream, after, bytes_max):
        found, size = [], 0
        for record in self.records[stream]:
            size += len(record.payload) if record.number > after else 0
            if record.number > after and (not found or size <= bytes_max):
                found.append(record)
        self.while_reading(stream)
        return found


@pytest.fixture
def streams():
    return Streams()


@pytest.fixture
def clock():
    return ManualClock()


def order_of(streams, clock, bytes_max=10_000):
    return ArrivalOrder(streams.list, streams.read, clock, bytes_max)


def places(taken):
    return [(stream, record.number) for stream, record in taken]


def all_taken(order):
    """Take until nothing is left; return each step."""
    positions, steps = {}, []
    while records := order.take(positions)[0]:
        positions |= {stream: record.number for stream, record in records}
        steps.append(places(records))
    return steps


def test_records_of_all_streams_are_returned_in_order_of_arrival(streams, clock):
    for stream, at in [(1, 5), (0, 1), (1, 7), (255, 6), (0, 8)]:
        streams.append(stream, at)
    assert places(order_of(streams, clock).take({})[0]) == [(0, 1), (1, 1), (255, 1), (1, 2), (0, 2)]


def test_records_that_arrive_while_another_stream_is_read_wait_for_the_next_step(streams, clock):
    streams.append(0, NOW_US - 1)
    streams.append(1, NOW_US - 2)

    def arrive(stream):
        """First in the stream just read, then in the one read next."""
        streams.while_reading = lambda stream: None
        streams.append(stream, NOW_US + 1)
        streams.append(1 - stream, NOW_US + 2)

    streams.while_reading = arrive
    order = order_of(streams, clock)
    first = order.take({})
    assert places(first[0]) == [(1, 1), (0, 1)]
    clock.advance(1)
    later = [record for _, record in order.take({0: 1, 1: 1})[0]]
    assert len(later) == 2
    assert [record.payload[13:21] for record in later] == [(NOW_US + n).to_bytes(8, "little") for n in (1, 2)]


def test_nothing_is_returned_beyond_what_was_read_of_every_stream(streams, clock):
    for number in range(40):
        streams.append(0, 2 * number)
        streams.append(1, 2 * number + 1)
        streams.append(2, 1000 * number)
    steps = all_taken(order_of(streams, clock, bytes_max=1500))
    arrivals = [streams.records[stream][number - 1] for step in steps for stream, number in step]
    moments = [int.from_bytes(record.payload[13:21], "little") for record in arrivals]
    assert len(moments) == 120
    assert moments == sorted(moments)


@pytest.mark.parametrize("bytes_max", [300, 3_000, 9_000])
def test_streams_share_the_read_budget_of_a_step(streams, clock, bytes_max):
    for number in range(300):
        for stream in (0, 1, 255):
            streams.append(stream, 3 * number + stream % 3)
    steps = all_taken(order_of(streams, clock, bytes_max))
    for step in steps:
        counts = [sum(1 for stream, _ in step if stream == each) for each in (0, 1, 255)]
        assert max(counts) - min(counts) <= 1


def test_a_single_stream_gets_the_whole_budget(streams, clock):
    streams.records |= {0: [], 1: [], 255: []}
    for number in range(50):
        streams.append(1, number)
    assert len(order_of(streams, clock, bytes_max=5_000).take({})[0]) == 50


def test_the_result_says_whether_there_is_more(streams, clock):
    for number in range(20):
        streams.append(0, number)
    order = order_of(streams, clock, bytes_max=1_000)
    first = order.take({})
    assert (len(first[0]), first[1]) == (10, False)
    assert not order.take({0: 10})[1]
    assert order.take({0: 20})[1]


def test_a_clock_set_back_delays_nothing(streams, clock):
    streams.append(0, NOW_US + 3_600_000_000)
    streams.append(1, NOW_US - 1)
    streams.append(0, NOW_US)
    assert places(order_of(streams, clock).take({})[0]) == [(1, 1), (0, 1), (0, 2)]


def test_records_of_one_stream_keep_their_order_regardless_of_the_clock(streams, clock):
    for at in (5, 3, 4):
        streams.append(0, at)
    assert places(order_of(streams, clock).take({})[0]) == [(0, 1), (0, 2), (0, 3)]


def test_an_unreadable_record_keeps_its_place(streams, clock):
    streams.append(0, 5)
    streams.records[0].append(LogRecord(2, b"\xff"))
    streams.append(0, 6)
    assert places(order_of(streams, clock).take({})[0]) == [(0, 1), (0, 2), (0, 3)]


def test_records_are_read_again_after_a_reset(streams, clock):
    for number in range(20):
        streams.append(0, number)
        streams.append(1, 100 + number)
    order = order_of(streams, clock, bytes_max=1_000)
    first = places(order.take({})[0])
    order.reset()
    assert places(order.take({})[0]) == first


def test_a_range_that_is_read_again_has_the_same_order(streams, clock):
    """Its order follows from its own records: the clocks of machines that write to one stream may differ."""
    for stream, at, size in [(0, 90, 1_000), (0, 50, 100), (1, 60, 100), (1, 10, 100), (0, 70, 100)]:
        streams.append(stream, at, size)
    order = order_of(streams, clock, bytes_max=1_000)
    before, steps = {0: 0, 1: 0}, []
    while records := order.take(before)[0]:
        last = {**before, **{stream: record.number for stream, record in records}}
        assert order_of(streams, clock).take_range(before, last) == records
        assert in_order(records) == records
        before = last
        steps.append(places(records))
    assert len(steps) > 1
    assert sorted(place for step in steps for place in step) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]


def test_a_range_that_is_read_again_contains_nothing_else(streams, clock):
    for at in range(200):
        streams.append(0, at)
        streams.append(1, at)
    taken = order_of(streams, clock, bytes_max=300).take_range({0: 10, 1: 150}, {0: 12, 1: 151})
    assert places(taken) == [(0, 11), (0, 12), (1, 151)]


def test_nothing_is_taken_that_arrived_while_a_slow_stream_was_read(streams, clock):
    """A record of the stream that was read first could have arrived before it."""
    streams.append(0, NOW_US)
    streams.append(1, NOW_US)

    def pause(stream):
        read_first.append(stream)
        if stream == read_first[0] and len(streams.records[stream]) == 1:
            clock.advance(60_000)
            streams.append(stream, NOW_US + 30_000_000)
            streams.append(1 - stream, NOW_US + 40_000_000)

    read_first = []
    streams.while_reading = pause
    order = order_of(streams, clock)
    assert places(order.take({})[0]) == [(0, 1), (1, 1)]
    first = read_first[0]
    assert places(order.take({0: 1, 1: 1})[0]) == [(first, 2), (1 - first, 2)]


def test_an_unfinished_step_is_returned_with_all_earlier_arrivals(streams, clock):
    for stream, at in [(0, 1), (1, 2), (0, 3), (1, 4), (255, 2), (255, 9)]:
        streams.append(stream, at)
    order = order_of(streams, clock, bytes_max=300)
    assert places(order.take_unfinished({}, {0: 2})) == [(0, 1), (1, 1), (255, 1), (0, 2)]
    assert places(order.take_unfinished({0: 1, 1: 1}, {0: 2})) == [(255, 1), (0, 2)]
    assert order.take_unfinished({0: 2}, {0: 2}) == []


def test_an_unfinished_step_is_limited_in_size_regardless_of_the_clock(streams, clock):
    streams.append(0, NOW_US + 3 * 86_400_000_000)
    for number in range(5_000):
        streams.append(1, NOW_US - 5_000 + number)
    order = order_of(streams, clock, bytes_max=10_000)
    assert places(order.take_unfinished({}, {0: 1})) == [(0, 1)]
    streams.append(0, NOW_US)
    assert len(order.take_unfinished({0: 1}, {0: 2})) <= 1 + 2 * 100


def test_held_back_records_are_reported(streams, clock):
    streams.append(0, NOW_US + 1_000)
    order = order_of(streams, clock)
    assert order.take({})[0] == []
    assert order.waiting_numbers() == {0: 1}
    clock.advance(1)
    assert places(order.take({})[0]) == [(0, 1)]
    assert order.waiting_numbers() == {}
