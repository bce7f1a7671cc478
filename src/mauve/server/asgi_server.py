"""Serve an ASGI application with granian's embedded server.

granian itself refuses most malformed HTTP, with an empty body. The guard refuses the rest of what the workers' HTTP
parser refuses. granian does not report connections, so the guard counts requests per address instead.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mauve.config import Settings
from mauve.control.plane import is_control_path
from mauve.core.problems import Code, Problem
from mauve.overload.fair_share import PerAddress
from mauve.web.asgi import flaw_of, send_reply
from mauve.web.envelopes import control_reply, data_reply
from mauve.web.head_rules import Flaw
from mauve.web.health import Drain
from mauve.web.http1.listener import BACKLOG, CONNECTIONS_MAX
from mauve.web.messages import Reply, json_reply

_CLOSE: Final = {"connection": "close"}
_TOO_MANY_TEXT: Final = "too many requests from this address are in progress: wait for some of them, then retry"
_HTTP_BUFFER_BYTES: Final = 64 * 1024  # per connection; clients control the number of connections
_HEADER_READ_TIMEOUT_MS: Final = 15_000  # also closes an idle keep-alive connection
_CONNECT_EVERY_S: Final = 0.01


class RequestGuard:
    """Middleware in front of every plane: refuse ambiguous requests, and too many from one address."""

    def __init__(self, app: ASGIApp, per_address: int, drain: Drain) -> None:
        self._app = app
        self._drain = drain
        self._addresses = PerAddress(per_address, "requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._drain.is_on:
            send = _closing_send(send)
        flaw = flaw_of(scope)
        if flaw is not None:
            await send_reply(send, _refused(scope["path"], flaw))
            return
        address = scope["client"][0]
        if not self._addresses.enter(address):
            await send_reply(send, _too_many_reply(scope["path"]))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._addresses.leave(address)


def _refused(path: str, flaw: Flaw) -> Reply:
    """Return the refusal in the plane's envelope. Close the connection: the end of such a request is ambiguous."""
    if is_control_path(path):
        return _closing(json_reply(flaw.status, {"error": {"code": Code.INVALID_BODY, "message": flaw.text}}))
    return _closing(json_reply(flaw.status, {"ok": False, "error": flaw.text}))


def _too_many_reply(path: str) -> Reply:
    if is_control_path(path):
        return _closing(control_reply(Problem(Code.UPSTREAM_UNAVAILABLE, _TOO_MANY_TEXT)))
    return _closing(data_reply(Problem(Code.NOT_STORED, _TOO_MANY_TEXT, retry_after_s=1)))


def _closing_send(send: Send) -> Send:
    """Close the connection after the reply: the client's next request then goes to another machine."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message.get("headers", ()) if name != b"connection"]
            message = {**message, "headers": [*headers, (b"connection", b"close")]}
        await send(message)

    return send_closing


def _closing(reply: Reply) -> Reply:
    return reply._replace(headers={**reply.headers, **_CLOSE})


class AsgiServer:
    def __init__(self, app: ASGIApp, settings: Settings, drain: Drain) -> None:
        self._host, self._port = settings.host, settings.port
        self._server = Server(
            RequestGuard(app, settings.connections_per_address, drain),
            address=self._host,
            port=self._port,
            interface=Interfaces.ASGINL,
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
