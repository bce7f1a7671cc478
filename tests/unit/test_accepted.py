"""Accepted events are counted with few subtotals: never too low, and too high by a small part of the backlog."""

import pytest

from mauve.core.accepted import MERGED_SHARE, SUBTOTALS_MAX, AcceptedCounts, OrgPeriod

ORG_PERIOD = OrgPeriod("org_1", "2027-01")
RECORDS = 100_000
POLL_RECORDS = 100  # records between two polls: 400 a second, four polls
LAG_RECORDS = 600  # how far the loader lags: 1.5 s


class Stream:
    """Records of a stream followed by a loader. `too_many` is the overcount."""

    def __init__(self, events_of_record):
        self._events_of_record = events_of_record
        self._counts = AcceptedCounts()
        self._accepted = 0
        self._loaded = 0
        self._loaded_at_poll = 0
        self._position = 0
        self.number = 0

    def append(self):
        self.number += 1
        events = self._events_of_record(self.number)
        self._counts.add(ORG_PERIOD, self.number, events)
        self._accepted += events

    def load(self, through):
        self._loaded += sum(map(self._events_of_record, range(self._position + 1, through + 1)))
        self._position = max(through, self._position)

    def look(self):
        self._counts.drop_loaded(self._position)
        self._loaded_at_poll = self._loaded

    @property
    def too_many(self):
        return self._loaded + self._counts.sums(self._position).get(ORG_PERIOD, 0) - self._accepted

    @property
    def subtotal_count(self):
        return sum(len(subtotals) for _, subtotals in self._counts)

    @property
    def waiting(self):
        """Return how many events were not loaded at the last poll."""
        return self._accepted - self._loaded_at_poll


def one(_number):
    return 1


def uneven(number):
    return 500 if number % 97 == 0 else number % 7 + 1


@pytest.mark.parametrize("events_of_record", [one, uneven])
def test_steady_traffic_is_overcounted_by_a_small_part_of_the_backlog(events_of_record):
    stream = Stream(events_of_record)
    waiting_max = 0
    for _ in range(RECORDS):
        stream.append()
        stream.load(stream.number - LAG_RECORDS)
        waiting_max = max(waiting_max, stream.waiting)
        if stream.number % POLL_RECORDS == 0:
            stream.look()
        if stream.number % 10 == 0:
            # The subtotals held the backlog and one share: the one subtotal that is loaded in part.
            assert 0 <= stream.too_many <= waiting_max / (MERGED_SHARE - 1)
        assert stream.subtotal_count <= SUBTOTALS_MAX


@pytest.mark.parametrize("events_of_record", [one, uneven])
def test_after_an_outage_events_are_overcounted_only_until_the_loader_catches_up(events_of_record):
    stream = Stream(events_of_record)
    for _ in range(RECORDS):
        stream.append()
    assert stream.too_many == 0, "nothing is loaded in part"
    assert stream.subtotal_count <= SUBTOTALS_MAX
    waited = stream.waiting
    position = 0
    while position < stream.number - LAG_RECORDS:
        position += 10 * POLL_RECORDS
        for _ in range(POLL_RECORDS):
            stream.append()
        stream.load(position)
        assert 0 <= stream.too_many <= waited // MERGED_SHARE
        stream.look()
        assert 0 <= stream.too_many <= waited // MERGED_SHARE
    stream.load(stream.number)
    stream.look()
    assert (stream.too_many, stream.subtotal_count) == (0, 0)


def test_large_records_are_never_merged_into_a_subtotal_above_the_share():
    counts = AcceptedCounts()
    for number in range(1, 1001):
        counts.add(ORG_PERIOD, number, 1000 if number % 10 == 0 else 1)
        ((_, subtotals),) = counts
        total = sum(events for _, events in subtotals)
        assert len(subtotals) <= SUBTOTALS_MAX
        assert all(events <= max(1000, total // MERGED_SHARE) for _, events in subtotals)
