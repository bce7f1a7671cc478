"""Takes connections in, up to a bound, watches over them, and lets them end in peace."""

import asyncio
import contextlib
import socket
import time
from typing import Final

import structlog

from mauve.web.http1.connection import Answer, Connection, Shared
from mauve.web.http1.replies import date_line

BACKLOG: Final = 2048
CONNECTIONS_MAX: Final = 2048  # The others wait in the backlog, unaccepted, and cost no memory here.
_SWEEP_EVERY_S: Final = 1.0
_END_WITHIN_S: Final = 5.0
_RECHECK_EVERY_S: Final = 0.01
_ACCEPT_AGAIN_AFTER_S: Final = 0.1

log = structlog.get_logger()


class Listener:
    """A server of HTTP/1.1 on one port, which processes may share."""

    def __init__(self, answer: Answer, address: tuple[str, int], per_address: int = 0) -> None:
        self._address = address
        self._shared = Shared(answer, per_address)
        self._shared.came, self._shared.left = self._has_come, self._has_left
        self._accepting: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def open(self) -> None:
        """Listen from now on."""
        self._loop = asyncio.get_running_loop()
        self._socket = _listening(self._address)
        self._sweeping = asyncio.create_task(self._sweep_forever())
        await self._accept()

    def stop(self) -> None:
        """Take nobody in any more; `closed` returns when those who are here have their answers."""
        self._stopped.set()

    async def closed(self) -> None:
        """Return when it was stopped and everybody has left, or was asked to for long enough."""
        await self._stopped.wait()
        self._shared.is_stopping = True
        if self._reopening is not None:
            await self._reopening
        self._pause()
        self._socket.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN_S):
                await self._everybody_has_left()
        for connection in list(self._shared.connections):
            connection.give_up()
        self._sweeping.cancel()

    async def _everybody_has_left(self) -> None:
        for connection in list(self._shared.connections):
            connection.wind_down()
        while self._shared.connections:  # noqa: ASYNC110 - it happens once, at the end
            await asyncio.sleep(_RECHECK_EVERY_S)

    async def _accept(self) -> None:
        # On a copy of the socket: when that is closed, who comes still finds the other one, and waits there.
        self._accepting = await self._loop.create_server(
            lambda: Connection(self._shared, self._loop), sock=self._socket.dup(), backlog=BACKLOG
        )

    async def _accept_again(self) -> None:
        while self._accepting is None and not self._shared.is_stopping:
            try:
                await self._accept()
            except OSError as error:
                log.warning("not_accepting", reason=str(error), advice=f"trying again in {_ACCEPT_AGAIN_AFTER_S} s")
                await asyncio.sleep(_ACCEPT_AGAIN_AFTER_S)

    def _pause(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _has_come(self) -> None:
        if len(self._shared.connections) >= CONNECTIONS_MAX:
            self._pause()

    def _has_left(self) -> None:
        is_opening = self._reopening is not None and not self._reopening.done()
        if self._accepting is None and not is_opening and not self._shared.is_stopping:
            self._reopening = self._loop.create_task(self._accept_again())

    async def _sweep_forever(self) -> None:
        while True:
            self._shared.date = date_line(time.time())
            await asyncio.sleep(_SWEEP_EVERY_S)
            self._shared.sweep += 1
            for connection in list(self._shared.connections):
                connection.look()


def _listening(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family, kind, protocol, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # What is accepted inherits it.
        listening.bind(resolved)
        listening.listen(BACKLOG)
        listening.setblocking(False)  # noqa: FBT003 - its only parameter
    except OSError:
        listening.close()
        raise
    return listening
