"""Loaded messages stay in a stream as far as they fit in half of its room."""

import pytest

from mauve.stores.log.nats.streams import StreamConfig, StreamInfo, StreamState, fills_its_part, first_that_fits


@pytest.mark.parametrize(
    ("stored_bytes", "first", "fills"),
    [(300, 101, False), (500, 101, True), (1000, 151, True)],
    ids=["little", "half", "all of the room"],
)
def test_the_newest_that_fit_in_half_of_the_room_stay(stored_bytes, first, fills):
    state = StreamState(first_seq=101, last_seq=200, messages=100, bytes=stored_bytes)
    info = StreamInfo(StreamConfig(max_bytes=1000), state)
    assert (first_that_fits(info), fills_its_part(info)) == (first, fills)
