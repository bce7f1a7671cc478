"""The ASGI door: ASGI's dictionaries in, our request and reply out."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from mauve.web.body import IncompleteBodyError, read_body
from mauve.web.messages import Reply, Request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def read_request(scope: Scope, receive: Receive, body_bytes_max: int) -> Request:
    """Read the request whole, keeping at most `body_bytes_max` bytes of its body."""
    return Request(
        method=scope["method"],
        path=_path(scope),
        authorization=_header(scope, b"authorization"),
        body=await read_body(_chunks(receive), body_bytes_max),
    )


async def send_reply(send: Send, reply: Reply) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _path(scope: Scope) -> str:
    """Return the decoded path; one with an escaped slash stays as it came and so matches no route."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    return raw.decode("latin-1") if b"%2f" in raw.lower() else path


def _header(scope: Scope, name: bytes) -> str | None:
    """Return the header's value; a header sent twice is joined, as HTTP says, and then fits no credential."""
    values = [value for key, value in scope["headers"] if key == name]
    return b", ".join(values).decode("latin-1") if values else None


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise IncompleteBodyError
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
