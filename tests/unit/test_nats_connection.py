"""A connection to NATS that is closed leaves nothing open behind it."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.log.nats.connection import Connection, close, connect
from mauve.stores.log.nats.transport import AbortingTransport

INFO = f"INFO {json.dumps({'server_id': 'one', 'version': '2.12.0', 'max_payload': 1048576})}\r\n".encode()


class Server:
    """Greets every client, and answers its pings."""

    def __init__(self):
        self.accepted = 0
        self.open = 0
        self.all_left = asyncio.Event()

    async def serve(self, reader, writer):
        self.accepted += 1
        self.open += 1
        self.all_left.clear()
        writer.write(INFO)
        with suppress(ConnectionError):  # A client may leave without having read everything.
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        self.open -= 1
        if not self.open:
            self.all_left.set()
        writer.close()


@asynccontextmanager
async def a_server():
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        yield server, Secret(f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        await server.all_left.wait()


def test_who_still_uses_a_closed_connection_does_not_open_it_again():
    async def use():
        async with a_server() as (server, url):
            connection = Connection(url, "mauve test")
            await connection.client()
            await connection.close()
            with pytest.raises(StoreUnavailableError):
                await connection.client()
            with pytest.raises(StoreUnavailableError):
                connection.connected()
            return server.accepted

    assert asyncio.run(use()) == 1


def test_closing_that_is_cancelled_still_drops_the_connection(monkeypatch):
    async def use():
        async with a_server() as (server, url):
            client = await connect(url, "mauve test")
            begun = asyncio.Event()

            async def hang():
                begun.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(client, "close", hang)
            closing = asyncio.create_task(close(client))
            await begun.wait()
            assert server.open == 1
            closing.cancel()
            await asyncio.wait({closing})
            await server.all_left.wait()
            assert closing.cancelled()
            (reconnecting,) = [task for task in asyncio.all_tasks() if "_attempt_reconnect" in repr(task)]
            await reconnecting
            return server.accepted

    assert asyncio.run(use()) == 1


def test_a_connection_that_opens_after_the_end_is_dropped():
    async def use():
        async with a_server() as (server, url):
            transport = AbortingTransport()
            connecting = asyncio.create_task(transport.connect(urlsplit(url.reveal()), 1024, 60))
            await asyncio.sleep(0)
            transport.end()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            with pytest.raises(asyncio.CancelledError):
                await transport.connect(urlsplit(url.reveal()), 1024, 60)
            return server.accepted

    assert asyncio.run(use()) == 1
