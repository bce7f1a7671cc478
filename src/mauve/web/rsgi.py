"""The RSGI door: granian's own protocol, for the ingest workers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # its documented name

from mauve.web.body import IncompleteBodyError, declared_size, read_body
from mauve.web.deadlines import Deadlines
from mauve.web.messages import Reply


class RsgiHeaders(Protocol):
    def get(self, key: str) -> str | None: ...

    def get_all(self, key: str) -> list[str]: ...


class RsgiScope(Protocol):
    proto: str
    method: str
    path: str
    headers: RsgiHeaders


class RsgiTransport(Protocol):
    def __call__(self) -> Awaitable[bytes]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...


class RsgiRequest:
    """An open request at the RSGI door."""

    __slots__ = ("_deadlines", "_headers", "_transport", "declared_bytes", "method", "path")

    def __init__(self, scope: RsgiScope, transport: RsgiTransport, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.method = scope.method
        self.path = scope.path
        self._headers = scope.headers
        self.declared_bytes = declared_size(scope.headers.get("content-length"))
        self._transport = transport

    def header(self, name: str) -> str | None:
        values = self._headers.get_all(name)
        if len(values) == 1:
            return values[0]
        return ", ".join(values) if values else None

    def header_values(self, name: str) -> list[str]:
        return self._headers.get_all(name)

    async def body(self, bytes_max: int) -> bytes:
        if self.declared_bytes is None or self.declared_bytes > bytes_max:
            # Chunks end quietly when the sender goes away. A JSON array or object that was cut off does not
            # parse, and compressed data that was cut off does not inflate: nothing partial is ever taken.
            return await read_body(self._transport, bytes_max)
        task = self._deadlines.begin()
        try:
            return await self._transport()
        except ProtocolClosed:
            raise IncompleteBodyError from None
        except asyncio.CancelledError:
            if self._deadlines.is_overdue(task):
                raise IncompleteBodyError from None
            raise
        finally:
            self._deadlines.end(task)


def send_reply(transport: RsgiTransport, reply: Reply) -> None:
    transport.response_bytes(int(reply.status), list(reply.headers.items()), reply.body)
