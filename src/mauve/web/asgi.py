"""The ASGI door: ASGI's dictionaries in, our request and reply out."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

from mauve.web import heads
from mauve.web.body import BodyTooLargeError, IncompleteBodyError, declared_size, never, read_body
from mauve.web.messages import Reply, Request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEAD_BYTES: Final = len("  HTTP/1.1\r\n\r\n")
_HEADER_BYTES: Final = len(": \r\n")


async def read_request(scope: Scope, receive: Receive, body_bytes_max: int) -> Request:
    """Read the request whole, keeping at most `body_bytes_max` bytes of its body."""
    opened = AsgiRequest(scope, receive)
    body: bytes | None
    try:
        body = await opened.body(body_bytes_max)
    except (BodyTooLargeError, IncompleteBodyError):
        body = None
    return Request(opened.method, opened.path, opened.header("authorization"), body)


class AsgiRequest:
    """An open request at the ASGI door."""

    __slots__ = ("_receive", "_scope", "method", "path")
    buffered_body = None  # ASGI delivers the body on request.

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path = _path(scope)
        self._scope = scope
        self._receive = receive

    def header(self, name: str) -> str | None:
        return header(self._scope, name.encode())

    def header_values(self, name: str) -> list[str]:
        return [value.decode("latin-1") for key, value in self._scope["headers"] if key == name.encode()]

    @property
    def declared_bytes(self) -> int | None:
        return declared_size(self.header("content-length"))

    async def body(self, bytes_max: int, should_evict: Callable[[], bool] = never) -> bytes:
        return await read_body(_chunks(self._receive), bytes_max, should_evict)


async def send_reply(send: Send, reply: Reply) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _path(scope: Scope) -> str:
    """Return the decoded path; one with an escaped slash stays as it came and so matches no route."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    return raw.decode("latin-1") if b"%2f" in raw.lower() else path


def header(scope: Scope, name: bytes) -> str | None:
    """Return the header's value; a header sent twice is joined."""
    values = [value for key, value in scope["headers"] if key == name]
    return b", ".join(values).decode("latin-1") if values else None


def flaw_of(scope: Scope) -> heads.Flaw | None:
    """Return why a request is refused by its head alone."""
    sent: list[tuple[bytes, bytes]] = scope["headers"]
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size = _HEAD_BYTES + len(scope["method"]) + target
    size += sum(_HEADER_BYTES + len(key) + len(value) for key, value in sent)
    if size > heads.HEAD_BYTES_MAX or len(sent) > heads.HEADERS_MAX:
        return heads.TOO_LARGE
    found: dict[bytes, list[bytes]] = {b"host": [], b"content-length": [], b"transfer-encoding": []}
    for key, value in sent:
        if key in found:
            found[key].append(value)
    version = "1.1" if scope["http_version"] == "1.1" else "1.0"
    return heads.flaw_in(version, *found.values())


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise IncompleteBodyError
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
