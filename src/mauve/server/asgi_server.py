"""Serve an ASGI application with granian's embedded server."""

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

_HTTP_BUFFER_BYTES: Final = 64 * 1024  # per connection; clients control the number of connections
_HEADER_READ_TIMEOUT_MS: Final = 15_000  # also closes an idle keep-alive connection
_CONNECT_EVERY_S: Final = 0.01


class AsgiServer:
    def __init__(
        self,
        app: Any,  # noqa: ANN401 - an application of the given interface
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
            # HTTP/1 only: with HTTP/2 enabled, an idle connection is never closed.
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
        )

    async def open(self) -> None:
        """Return when clients can connect."""
        with _batch_scheduled_threads():
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
def _batch_scheduled_threads() -> Iterator[None]:
    """Schedule threads started in the block as batch work, so that they do not preempt the event loop when they wake.

    The server's thread wakes for every request and reply, often while the event loop still holds the interpreter. If it
    waits instead, it reads and sends several at a time.
    """
    is_changed = _change_policy(to_batch=True)
    try:
        yield
    finally:
        if is_changed:
            _change_policy(to_batch=False)


def _change_policy(*, to_batch: bool) -> bool:
    """Change this thread's scheduling policy unless the operator has set one; return whether it changed."""
    if sys.platform != "linux":
        return False
    expected, wanted = (os.SCHED_OTHER, os.SCHED_BATCH) if to_batch else (os.SCHED_BATCH, os.SCHED_OTHER)
    try:
        if os.sched_getscheduler(0) != expected:
            return False
        os.sched_setscheduler(0, wanted, os.sched_param(0))
    except OSError:  # A container may forbid it. Everything still works, but less efficiently.
        return False
    return True
