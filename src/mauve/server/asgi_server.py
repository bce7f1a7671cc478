"""granian's embedded server behind the three words that a process needs: open, stop, closed."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from mauve.web.http1.listener import BACKLOG, CONNECTIONS_MAX

_HTTP_BUFFER_BYTES: Final = 64 * 1024  # for each connection, whose number we do not choose
_HEADER_READ_TIMEOUT_MS: Final = 15_000  # also closes a connection that is kept alive and says nothing
_CONNECT_EVERY_S: Final = 0.01


class AsgiServer:
    """Serves an ASGI application on one port."""

    def __init__(
        self,
        app: Any,  # noqa: ANN401 - an application of that interface
        address: tuple[str, int],
        interface: Interfaces = Interfaces.ASGINL,
    ) -> None:
        self._host, self._port = address
        self._server = Server(
            app,
            address=self._host,
            port=self._port,
            interface=interface,
            backlog=BACKLOG,
            backpressure=CONNECTIONS_MAX,
            http1_settings=HTTP1Settings(
                header_read_timeout=_HEADER_READ_TIMEOUT_MS, max_buffer_size=_HTTP_BUFFER_BYTES
            ),
            # HTTP/1 alone: with HTTP/2 allowed, a connection that says nothing is never closed.
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
        )

    async def open(self) -> None:
        """Return when clients can connect."""
        with _unhurried_threads():
            self._serving = asyncio.ensure_future(self._server.serve())
            await self._until_listening()

    def stop(self) -> None:
        self._server.stop()

    async def closed(self) -> None:
        await self._serving

    async def _until_listening(self) -> None:
        while not self._serving.done():
            try:
                _, writer = await asyncio.open_connection(self._host, self._port)
            except OSError:
                await asyncio.sleep(_CONNECT_EVERY_S)
            else:
                writer.close()
                return
        await self._serving


@contextlib.contextmanager
def _unhurried_threads() -> Iterator[None]:
    """Let the threads that begin meanwhile wait for the core that another holds, rather than take it when they wake.

    The server's thread wakes for every request and every reply, and would often find that the event loop still holds
    the interpreter. When it waits, it has several to read and to send at a time.
    """
    is_changed = _change_policy(to_batch=True)
    try:
        yield
    finally:
        if is_changed:
            _change_policy(to_batch=False)


def _change_policy(*, to_batch: bool) -> bool:
    """Change how this thread is scheduled, unless somebody has chosen that already; return whether it was changed."""
    if sys.platform != "linux":
        return False
    usual, wanted = (os.SCHED_OTHER, os.SCHED_BATCH) if to_batch else (os.SCHED_BATCH, os.SCHED_OTHER)
    try:
        if os.sched_getscheduler(0) != usual:
            return False
        os.sched_setscheduler(0, wanted, os.sched_param(0))
    except OSError:  # A container may forbid it: everything works then, and costs more.
        return False
    return True
