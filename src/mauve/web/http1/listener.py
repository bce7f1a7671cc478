"""Accept connections up to a limit, enforce their deadlines, and shut down gracefully."""

import asyncio
import contextlib
import socket
import time
from typing import Final

import structlog

from mauve.web.health import Drain
from mauve.web.http1.connection import Answer, Begin, Connection, SharedState, begin_nothing, date_line

BACKLOG: Final = 2048
CONNECTIONS_MAX: Final = 2048  # More wait in the backlog, where they cost this process no memory.
RESERVED: Final = 256  # of them, for clients that send without delay, such as health checks
_WAIT_S_MIN: Final = 2  # before a client counts as slow
_LOG_EVERY_S: Final = 60
_TICK_S: Final = 1.0
SHUTDOWN_S_MAX: Final = 5.0
_POLL_S: Final = 0.01
_ACCEPT_RETRY_S: Final = 0.1

log = structlog.get_logger()


class Listener:
    """Serve HTTP/1.1 on one port, which several processes may share."""

    def __init__(
        self,
        answer: Answer,
        address: tuple[str, int],
        per_address: int = 0,
        drain: Drain | None = None,
        begin: Begin = begin_nothing,
    ) -> None:
        self._address = address
        self._shared = SharedState(answer, per_address, drain, begin)
        self._shared.on_connect, self._shared.on_disconnect = self._on_connect, self._on_disconnect
        self._accepting: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._quiet_until_s = 0

    async def open(self) -> None:
        """Start listening."""
        self._loop = asyncio.get_running_loop()
        self._socket = _listening(self._address)
        self._ticking = asyncio.create_task(self._tick_forever())
        await self._accept()

    def stop(self) -> None:
        """Stop accepting connections; `closed` returns once the requests in flight are answered."""
        self._stopped.set()

    async def closed(self) -> None:
        """Wait for `stop`, then for the requests in flight, for a bounded time."""
        await self._stopped.wait()
        self._shared.is_stopping = True
        if self._reopening is not None:
            await self._reopening
        self._pause_accepting()
        self._socket.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S_MAX):
                await self._drain()
        for connection in list(self._shared.connections):
            connection.abort()
        self._ticking.cancel()

    async def _drain(self) -> None:
        for connection in list(self._shared.connections):
            connection.close_if_idle()
        while self._shared.connections:  # noqa: ASYNC110 - once, at shutdown
            await asyncio.sleep(_POLL_S)

    async def _accept(self) -> None:
        # On a duplicate of the socket: after it is closed, new connections still queue at the original.
        self._accepting = await self._loop.create_server(
            lambda: Connection(self._shared, self._loop), sock=self._socket.dup(), backlog=BACKLOG
        )

    async def _retry_accept(self) -> None:
        while self._accepting is None and not self._shared.is_stopping:
            try:
                await self._accept()
            except OSError as error:
                log.warning("not_accepting", reason=str(error), advice=f"trying again in {_ACCEPT_RETRY_S} s")
                await asyncio.sleep(_ACCEPT_RETRY_S)

    def _pause_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _on_connect(self) -> None:
        if len(self._shared.connections) >= CONNECTIONS_MAX:
            self._pause_accepting()

    def _on_disconnect(self) -> None:
        is_reopening = self._reopening is not None and not self._reopening.done()
        if self._accepting is None and not is_reopening and not self._shared.is_stopping:
            self._reopening = self._loop.create_task(self._retry_accept())

    async def _tick_forever(self) -> None:
        while True:
            self._shared.date = date_line(time.time())
            await asyncio.sleep(_TICK_S)
            self._shared.now_s += 1
            for connection in list(self._shared.connections):
                connection.check_deadline()
            self._evict_slowest()

    def _evict_slowest(self) -> None:
        """Close the connections that have waited longest for their clients, if others may find none."""
        excess = len(self._shared.connections) - (CONNECTIONS_MAX - RESERVED)
        if excess <= 0:
            return
        slow_since_s = self._shared.now_s - _WAIT_S_MIN
        slow = [each for each in self._shared.connections if each.waits_since_s <= slow_since_s]
        for connection in sorted(slow, key=lambda each: each.waits_since_s)[:excess]:
            connection.abort()
        if slow and self._shared.now_s >= self._quiet_until_s:
            self._quiet_until_s = self._shared.now_s + _LOG_EVERY_S
            advice = "clients send slowly or not at all: limit connections in a proxy, or add workers"
            log.warning("connections_evicted", count=min(excess, len(slow)), advice=advice)


def _listening(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family, kind, protocol, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Accepted sockets inherit it.
        listening.bind(resolved)
        listening.listen(BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - its only parameter
    except OSError:
        listening.close()
        raise
    return listening
