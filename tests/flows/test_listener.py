"""A worker's own HTTP on a real port: it serves every kind of client, and answers all of them when it stops.

Proves: slow-clients, not-http, stop.
"""

import asyncio
import http.client
import json
import socket
import threading
import urllib.request

import httpx2 as httpx
import pytest
import uvloop

from mauve.web.body import BYTES_PER_S
from mauve.web.http1 import listener
from mauve.web.http1.listener import Listener
from mauve.web.messages import Reply
from support.service import PATIENCE_S, eventually

BODY_BYTES_MAX = 1024 * 1024


class Serving:
    """A listener in a thread of its own."""

    def __init__(self):
        self._reserved = socket.socket()  # keeps the port from being assigned elsewhere
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked = threading.Event()
        self._ready = threading.Event()
        self.thread = threading.Thread(target=lambda: uvloop.run(self._serve()))
        self.thread.start()
        assert self._ready.wait(PATIENCE_S)

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._may_answer = asyncio.Event()
        self._listener = Listener(self._answer, ("127.0.0.1", self.port))
        await self._listener.open()
        self._ready.set()
        await self._listener.closed()

    async def _answer(self, request):
        if request.path == "/refused":
            return Reply(401, b"no")
        body = await request.body(BODY_BYTES_MAX)
        if request.path == "/slow":
            self.asked.set()
            await self._may_answer.wait()
        return Reply(200, json.dumps([request.method, request.path, len(body)]).encode())

    def answer_slow_requests(self):
        self._loop.call_soon_threadsafe(self._may_answer.set)

    def stop(self):
        self._loop.call_soon_threadsafe(self._listener.stop)

    def close(self):
        if self.thread.is_alive():
            self.stop()
            self.thread.join(PATIENCE_S)
        self._reserved.close()
        assert not self.thread.is_alive()


@pytest.fixture
def serving():
    started = Serving()
    yield started
    started.close()


def connected(serving):
    return socket.create_connection(("127.0.0.1", serving.port), timeout=PATIENCE_S)


def everything_from(connection):
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def test_slow_bodies_that_take_every_connection_are_evicted_for_a_probe(monkeypatch):
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 12)
    monkeypatch.setattr(listener, "RESERVED", 4)
    serving, slow = Serving(), []
    try:
        for _ in range(12):
            connection = connected(serving)
            connection.sendall(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n")
            slow.append(connection)

        def feed():
            """Send just enough to be no slower than allowed; return whether a connection was ended."""
            ended = 0
            for connection in slow:
                try:
                    connection.sendall(b"x" * (BYTES_PER_S // 50))
                except OSError:
                    ended += 1
            return ended

        assert eventually(feed, timeout_s=60)
        with connected(serving) as probe:
            probe.sendall(b"GET /refused HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert everything_from(probe).startswith(b"HTTP/1.1 401")
        assert feed() < len(slow), "only as many as needed"
    finally:
        for connection in slow:
            connection.close()
        serving.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 200_000, BODY_BYTES_MAX])
def test_every_kind_of_client_is_answered(serving, size):
    expected = ["POST", "/a", size]
    body = b"x" * size
    with httpx.Client() as client:
        assert [client.post(f"{serving.url}/a", content=body).json() for _ in range(3)] == [expected] * 3
        pieces = (body[start : start + 1000] for start in range(0, size, 1000))
        assert client.post(f"{serving.url}/a?b", content=pieces).json() == expected
    with urllib.request.urlopen(f"{serving.url}/a", data=body) as reply:
        assert json.load(reply) == expected
    connection = http.client.HTTPConnection("127.0.0.1", serving.port)
    for _ in range(2):
        connection.request("POST", "/a", body)
        assert json.load(connection.getresponse()) == expected
    connection.close()


def test_a_client_that_is_still_sending_can_read_the_refusal(serving):
    for _ in range(20):
        with connected(serving) as connection:
            connection.sendall(b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n")
            connection.sendall(b"x" * 3_000_000)
            assert everything_from(connection).startswith(b"HTTP/1.1 401 ")


def test_a_thousand_clients_are_served_at_once(serving):
    clients = [connected(serving) for _ in range(1000)]
    for client in clients:
        client.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert all(everything_from(client).endswith(b'["GET", "/a", 0]') for client in clients)
    for client in clients:
        client.close()


def test_on_shutdown_requests_in_flight_are_answered_and_idle_connections_closed(serving):
    with connected(serving) as asking, connected(serving) as idle:
        idle.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        asking.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        assert serving.asked.wait(PATIENCE_S)
        serving.stop()
        assert everything_from(idle) == b""
        serving.answer_slow_requests()
        answer = everything_from(asking)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in answer
    serving.thread.join(PATIENCE_S)
    assert not serving.thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(serving)


def test_on_shutdown_a_client_that_has_sent_more_requests_reads_the_reply_and_a_clean_end(serving):
    with connected(serving) as asking:
        asking.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        assert serving.asked.wait(PATIENCE_S)
        # More than the server reads ahead: the rest waits in the socket, where a close would turn it into a reset.
        asking.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" * 20_000)
        serving.stop()
        serving.answer_slow_requests()
        answer = everything_from(asking)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(b'["GET", "/slow", 0]')
    serving.thread.join(PATIENCE_S)
    assert not serving.thread.is_alive()


def test_a_request_that_is_never_answered_does_not_block_shutdown(serving, monkeypatch):
    monkeypatch.setattr(listener, "SHUTDOWN_S_MAX", 0.1)
    with connected(serving) as asking:
        asking.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        assert serving.asked.wait(PATIENCE_S)
        serving.stop()
        serving.thread.join(PATIENCE_S)
        assert not serving.thread.is_alive()
