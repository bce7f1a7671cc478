"""Requests to the leader of a stream, which may be lost while one is elected."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.log.nats import streams
from mauve.stores.log.nats.streams import (
    LEADER_CONTACT_S_MAX,
    NO_ANSWER,
    ApiError,
    Cluster,
    Peer,
    StreamInfo,
    StreamState,
    ask_leader,
    stream_info,
)

UNAVAILABLE = b'{"error": {"code": 503, "description": "JetStream system temporarily unavailable"}}'
NOT_FOUND = b'{"error": {"code": 404, "description": "stream not found"}}'


class Leader:
    """Answers the requests of a test one after another: after a while, or never."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = 0

    async def request(self, _subject, _content, timeout):  # noqa: ASYNC109 - as the library calls it
        self.requests += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.sleep(timeout)
            raise TimeoutError
        after_s, data = answer
        await asyncio.sleep(after_s)
        return SimpleNamespace(data=data)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(streams, "AGAIN_S", 0.01)


def ask(leader):
    return asyncio.run(ask_leader(leader, "STREAM.INFO.MAUVE-240"))


@pytest.mark.parametrize("lost", [[None], [None, None, None], [(0, UNAVAILABLE)], [None, (0, UNAVAILABLE), None]])
def test_a_lost_request_is_sent_again(lost):
    leader = Leader(*lost, (0, b"{}"))
    assert ask(leader) == b"{}"
    assert leader.requests == len(lost) + 1


def test_a_slow_answer_to_an_early_request_counts():
    leader = Leader((0.1, b'{"slow": 1}'))
    assert ask(leader) == b'{"slow": 1}'
    assert leader.requests > 1, "others were sent meanwhile"


def test_a_refusal_is_final_unless_there_is_no_leader(monkeypatch):
    with pytest.raises(ApiError, match="stream not found"):
        ask(Leader((0, NOT_FOUND)))
    monkeypatch.setattr(streams, "API_S_MAX", 0.05)
    with pytest.raises(StoreUnavailableError, match="temporarily unavailable"):
        ask(Leader(*[(0, UNAVAILABLE)] * 100))


def test_without_an_answer_it_ends(monkeypatch):
    monkeypatch.setattr(streams, "API_S_MAX", 0.05)
    with pytest.raises(StoreUnavailableError, match=NO_ANSWER):
        ask(Leader())


RECENT_S, LONG_AGO_S = LEADER_CONTACT_S_MAX - 0.1, LEADER_CONTACT_S_MAX + 0.1


def a_cluster(*silent_s, leader="n0", current=True):
    """What a server says of the others: for how long each was silent."""
    peers = [Peer(f"n{place}", current, int(each * 1e9)) for place, each in enumerate(silent_s, 1)]
    return Cluster("cluster", leader, peers)


@pytest.mark.parametrize(
    ("cluster", "copies", "is_led"),
    [
        (Cluster(), 1, True),  # a single server
        (a_cluster(), 1, True),
        (a_cluster(), 3, False),  # It knows none of the others.
        (a_cluster(0.0, RECENT_S), 3, True),
        (a_cluster(LONG_AGO_S, RECENT_S), 3, True),
        (a_cluster(LONG_AGO_S, RECENT_S, current=False), 3, True),  # It copies messages.
        (a_cluster(LONG_AGO_S, LONG_AGO_S), 3, False),
        (a_cluster(0.0, 0.0, current=False), 3, False),  # never heard
        (a_cluster(0.0, RECENT_S, leader=""), 3, False),
        (a_cluster(RECENT_S, LONG_AGO_S, LONG_AGO_S, LONG_AGO_S), 5, False),
        (a_cluster(RECENT_S, RECENT_S, LONG_AGO_S, LONG_AGO_S), 5, True),
    ],
)
def test_a_leader_counts_if_most_servers_follow_it(cluster, copies, is_led):
    assert cluster.is_led(copies) is is_led


@pytest.mark.parametrize("not_led", [a_cluster(RECENT_S, RECENT_S, leader=""), a_cluster(LONG_AGO_S, LONG_AGO_S)])
def test_what_exists_is_not_learned_from_a_server_that_does_not_lead(not_led):
    """It may lag: what it does not have yet would pass for loaded."""

    def says(cluster, last_seq):
        info = StreamInfo(streams.StreamConfig(), StreamState(last_seq=last_seq), cluster)
        return (0, msgspec.json.encode(info))

    answers = Leader(says(not_led, 3), says(not_led, 3), says(a_cluster(RECENT_S, LONG_AGO_S), 9))
    assert asyncio.run(stream_info(answers, 240)).state.last_seq == 9


def refused(reason):
    return f'{{"error": {{"code": 400, "description": "no suitable peers for placement, {reason}"}}}}'.encode()


def place(leader):
    asyncio.run(streams.create_stream(leader, 240, {}))


def test_a_stream_is_created_once_every_server_is_seen():
    leader = Leader((0, refused("peer offline")), (0, refused("peer offline")), (0, b"{}"))
    place(leader)
    assert leader.requests == 3


def test_a_server_that_stays_down_is_reported_in_the_end(monkeypatch):
    monkeypatch.setattr(streams, "PLACED_S_MAX", 0)
    with pytest.raises(ApiError, match="peer offline"):
        place(Leader(*[(0, refused("peer offline"))] * 100))


def test_too_little_storage_is_reported_at_once():
    leader = Leader((0, refused("insufficient storage")), (0, b"{}"))
    with pytest.raises(ApiError, match="insufficient storage"):
        place(leader)
    assert leader.requests == 1
