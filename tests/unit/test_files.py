"""A file that is sent piece by piece."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mauve.dashboard.pages import sheets
from mauve.dashboard.pages.sheets import FileResponse
from mauve.stores import StoreUnavailableError

GET = {"type": "http", "method": "GET"}


class Client:
    """Takes messages, or stops taking them."""

    def __init__(self, pieces_taken=1_000):
        self.messages = []
        self._left = pieces_taken

    async def send(self, message):
        if message["type"] == "http.response.body" and message["body"]:
            if not self._left:
                await asyncio.Event().wait()
            self._left -= 1
        self.messages.append(message)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def is_whole(self):
        return self.messages[-1].get("more_body") is False


def sent(pieces, client, scope=GET):
    ended = []
    with ThreadPoolExecutor(1) as threads:
        response = FileResponse(pieces, {"content-type": "text/csv"})
        response.run_in(threads, lambda: ended.append(True))
        try:
            asyncio.run(response(scope, None, client.send))
        finally:
            assert ended == [True]
    return response


def numbers(count, made):
    for number in range(count):
        made.append(threading.current_thread().name)
        yield b"%d\n" % number


def test_pieces_are_made_in_threads_and_sent_in_order():
    client, made = Client(), []
    sent(numbers(5, made), client)
    assert client.body == b"0\n1\n2\n3\n4\n"
    assert client.is_whole
    assert all("ThreadPool" in name for name in made)
    assert not any(name == b"content-length" for name, _ in client.messages[0]["headers"])


def test_a_client_that_does_not_take_a_piece_is_given_up_and_holds_no_more(monkeypatch):
    monkeypatch.setattr(sheets, "PIECE_S_MAX", 0.01)
    client, made = Client(pieces_taken=2), []
    sent(numbers(1_000, made), client)
    assert not client.is_whole
    assert len(made) == 3


def test_a_store_that_fails_leaves_the_file_visibly_incomplete():
    def failing():
        yield b"1\n"
        raise StoreUnavailableError("down")

    client = Client()
    with pytest.raises(StoreUnavailableError):
        sent(failing(), client)
    assert not client.is_whole


def test_the_head_of_a_file_makes_no_piece():
    client, made = Client(), []
    sent(numbers(5, made), client, {**GET, "method": "HEAD"})
    assert (made, client.body) == ([], b"")
