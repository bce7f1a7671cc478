"""Reading a bucket notices replies that were lost on the way, and a server that is cut off from its leader."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.nats import bucket as bucket_of_nats
from mauve.stores.nats.bucket import (
    _ANSWER_S_MAX,
    CHECK_EVERY_S,
    ELECTION_S_MAX,
    BucketState,
    Entry,
    Follower,
    _all_entries,
)
from mauve.stores.nats.edge import OUT_OF_TOUCH_S, READ_EVERY_S

PREFIX = "$KV.B."


def an_entry(sequence, before):
    headers = {"Nats-Subject": f"{PREFIX}key.{sequence}", "Nats-Sequence": str(sequence), "Nats-Last-Sequence": before}
    return SimpleNamespace(headers=headers, data=b"value")


def the_end(before):
    return SimpleNamespace(headers={"Status": "204", "Nats-Last-Sequence": before}, data=b"")


class Replies:
    """Replies as a server sends them."""

    def __init__(self, *messages):
        self._messages = iter(messages)

    async def next_msg(self, timeout):  # noqa: ASYNC109 - as the library has it
        return next(self._messages)


def read(*messages):
    return asyncio.run(_all_entries(Replies(*messages), PREFIX))


def test_all_replies_are_read_up_to_the_end():
    found = read(an_entry(3, "0"), an_entry(7, "3"), the_end("7"))
    assert found == [Entry("key.3", 3, b"value"), Entry("key.7", 7, b"value")]
    assert read(SimpleNamespace(headers={"Status": "404"}, data=b"")) == []


@pytest.mark.parametrize(
    "replies",
    [
        (an_entry(7, "3"), the_end("7")),
        (an_entry(3, "0"), an_entry(9, "7"), the_end("9")),
        (an_entry(3, "0"), the_end("7")),
        (the_end("7"),),
        (an_entry(3, "0"), SimpleNamespace(headers={"Status": "404"}, data=b"")),
        (SimpleNamespace(headers={"Status": "503"}, data=b""),),
        (an_entry(3, "0"), SimpleNamespace(headers={"Status": "408"}, data=b"")),
    ],
)
def test_a_read_with_a_gap_or_a_refusal_returns_nothing(replies):
    with pytest.raises(StoreUnavailableError):
        read(*replies)


class BucketWithoutLeader:
    """A server that answers reads, and cannot reach the leader once that is gone."""

    has_leader = True

    async def state(self):
        if not self.has_leader:
            raise StoreUnavailableError("no leader")
        return BucketState("installation", "bucket", 0)

    async def changes_after(self, _sequence):
        return []


def test_a_server_without_a_leader_is_read_during_an_election_and_not_after_it():
    bucket, now_s = BucketWithoutLeader(), [0.0]
    follower = Follower(bucket, lambda: now_s[0])

    def next_changes(seconds_later):
        now_s[0] += seconds_later
        return asyncio.run(follower.next_changes())

    assert next_changes(0) == []
    bucket.has_leader = False
    assert next_changes(ELECTION_S_MAX) == []
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            next_changes(2.0)
    bucket.has_leader = True
    assert next_changes(0) == []
    bucket.has_leader = False
    assert next_changes(ELECTION_S_MAX) == []


@pytest.mark.parametrize("answer_s", [0.0, 0.5, _ANSWER_S_MAX])
def test_without_a_leader_a_reader_is_out_of_touch_after_an_election_and_within_twenty_seconds(answer_s):
    """Whether the survivor refuses at once or every question about the state takes as long as it may."""
    now_s = [0.0]

    class Survivor(BucketWithoutLeader):
        async def state(self):
            if not self.has_leader:
                now_s[0] += answer_s
            return await super().state()

    bucket = Survivor()
    follower = Follower(bucket, lambda: now_s[0])
    asyncio.run(follower.next_changes())
    bucket.has_leader = False
    read_at = 0.0
    while now_s[0] - read_at <= OUT_OF_TOUCH_S:
        now_s[0] += READ_EVERY_S
        with contextlib.suppress(StoreUnavailableError):
            asyncio.run(follower.next_changes())
            read_at = now_s[0]
    assert ELECTION_S_MAX + OUT_OF_TOUCH_S / 2 < now_s[0] < 20


class SlowLeader:
    """A leader whose answers about the state may take long, while another server has the changes."""

    def __init__(self):
        self.answers = asyncio.Event()
        self.answers.set()
        self.changes = []

    async def state(self):
        last_sequence = max((entry.sequence for entry in self.changes), default=0)
        await self.answers.wait()
        return BucketState("installation", "bucket", last_sequence)

    async def changes_after(self, sequence):
        return [entry for entry in self.changes if entry.sequence > sequence]


def test_changes_are_read_while_the_leader_does_not_answer(monkeypatch):
    monkeypatch.setattr(bucket_of_nats, "_SOON_S", 0.0)

    async def follow():
        bucket, now_s = SlowLeader(), [0.0]
        follower = Follower(bucket, lambda: now_s[0])
        assert await follower.next_changes() == []
        bucket.answers.clear()
        now_s[0] += CHECK_EVERY_S
        assert await follower.next_changes() == [], "the leader is asked, and does not answer"
        for sequence in (1, 2):
            bucket.changes.append(Entry("key", sequence, b"value"))
            assert await follower.next_changes() == [bucket.changes[-1]]
        bucket.answers.set()
        await asyncio.sleep(0)  # so that the answer arrives
        assert await follower.next_changes() == []
        assert (follower.sequence, follower.restarts) == (2, 0), "its answer is about the time before the changes"

    asyncio.run(follow())


def test_a_follower_without_an_answer_waits_for_one_after_an_election(monkeypatch):
    monkeypatch.setattr(bucket_of_nats, "_SOON_S", 0.0)

    async def follow():
        bucket, now_s = SlowLeader(), [0.0]
        follower = Follower(bucket, lambda: now_s[0])
        await follower.next_changes()
        bucket.answers.clear()
        now_s[0] += ELECTION_S_MAX + 1
        reading = asyncio.ensure_future(follower.next_changes())
        await asyncio.sleep(0.05)
        assert not reading.done(), "the server may be cut off from the others"
        bucket.answers.set()
        assert await reading == []

    asyncio.run(follow())


@pytest.mark.parametrize("returns", [True, False])
def test_a_leader_that_lacks_changes_is_believed_only_if_that_lasts(returns):
    """A new leader may not have stored yet what another server has; a bucket that was restored has less for good."""

    async def follow():
        bucket, now_s = SlowLeader(), [0.0]
        bucket.changes += [Entry("key", sequence, b"value") for sequence in (1, 2, 3)]
        follower = Follower(bucket, lambda: now_s[0])
        while await follower.next_changes():
            pass
        lost = bucket.changes.pop()
        for _ in range(int(ELECTION_S_MAX / CHECK_EVERY_S)):
            now_s[0] += CHECK_EVERY_S
            assert await follower.next_changes() == []
        assert (follower.sequence, follower.restarts, follower.state_asked_at) == (3, 0, 0.0)
        if returns:
            bucket.changes.append(lost)
        now_s[0] += 2 * CHECK_EVERY_S
        found = await follower.next_changes()
        # What has the place of the lost change may be another one.
        assert (len(found), follower.restarts) == ((1, 0) if returns else (2, 1))

    asyncio.run(follow())


def test_an_answer_that_was_late_is_followed_by_a_new_question_at_once(monkeypatch):
    monkeypatch.setattr(bucket_of_nats, "_SOON_S", 0.0)

    async def follow():
        bucket, now_s = SlowLeader(), [0.0]
        follower = Follower(bucket, lambda: now_s[0])
        await follower.next_changes()
        bucket.answers.clear()
        now_s[0] += CHECK_EVERY_S
        await follower.next_changes()
        bucket.answers.set()
        await asyncio.sleep(0)
        monkeypatch.setattr(bucket_of_nats, "_SOON_S", 60.0)
        now_s[0] += CHECK_EVERY_S
        await follower.next_changes()
        assert follower.state_asked_at == now_s[0]

    asyncio.run(follow())
