"""The RSGI door: granian's own protocol, for the ingest workers."""

from collections.abc import AsyncIterator
from typing import Protocol

from mauve.web.body import read_body
from mauve.web.messages import Reply, Request


class RsgiHeaders(Protocol):
    def get_all(self, key: str) -> list[str]: ...


class RsgiScope(Protocol):
    proto: str
    method: str
    path: str
    headers: RsgiHeaders


class RsgiTransport(Protocol):
    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...


async def read_request(scope: RsgiScope, transport: RsgiTransport, body_bytes_max: int) -> Request:
    """Read the request whole, keeping at most `body_bytes_max` bytes of its body."""
    values = scope.headers.get_all("authorization")
    return Request(
        method=scope.method,
        path=scope.path,
        authorization=", ".join(values) if values else None,
        body=await read_body(transport, body_bytes_max),
    )


def send_reply(transport: RsgiTransport, reply: Reply) -> None:
    transport.response_bytes(int(reply.status), list(reply.headers.items()), reply.body)
