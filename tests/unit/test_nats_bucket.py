"""Reading a bucket notices replies that were lost on the way."""

import asyncio
from types import SimpleNamespace

import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.nats.bucket import Entry, _all_entries

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
