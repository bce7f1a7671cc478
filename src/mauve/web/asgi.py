"""Raw ASGI, for the ingest plane on the main port and for cached metrics: our own small request and reply."""

from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import Final

from starlette.types import Receive, Scope, Send

from mauve.web import head_rules
from mauve.web.body import IncompleteBodyError, declared_size, never, read_body
from mauve.web.messages import Reply

_HEAD_BYTES: Final = len("  HTTP/1.1\r\n\r\n")
_HEADER_BYTES: Final = len(": \r\n")
_LEFT_ESCAPED: Final = (b"%2f", b"%0a")


class AsgiRequest:
    """An `OpenRequest` over ASGI."""

    __slots__ = ("_receive", "_scope", "method", "path")
    buffered_body = None  # ASGI delivers the body on request.

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._scope = scope
        self._receive = receive

    @property
    def query(self) -> bytes:
        query: bytes = self._scope["query_string"]
        return query

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


def matchable_path(scope: Scope) -> str:
    """Return the path to match against routes: decoded, unless an escape could make it match a route it is not.

    That is an escaped slash, and an escaped line feed: the `$` at the end of Starlette's patterns ignores one.
    """
    raw: bytes = scope.get("raw_path") or b""
    if b"%" in raw and any(escape in raw.lower() for escape in _LEFT_ESCAPED):
        return raw.decode("latin-1")
    path: str = scope["path"]
    return path


def header(scope: Scope, name: bytes) -> str | None:
    """Return the header's value; a header sent twice is joined."""
    values = [value for key, value in scope["headers"] if key == name]
    return b", ".join(values).decode("latin-1") if values else None


def flaw_of(scope: Scope) -> head_rules.Flaw | None:
    """Return why a request is refused by its head alone."""
    sent: list[tuple[bytes, bytes]] = scope["headers"]
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size = _HEAD_BYTES + len(scope["method"]) + target + _HEADER_BYTES * len(sent)
    size += len(b"".join(chain.from_iterable(sent)))
    hosts: list[bytes] = []
    lengths: list[bytes] = []
    codings: list[bytes] = []
    for key, value in sent:
        if key == b"host":
            hosts.append(value)
        elif key == b"content-length":
            lengths.append(value)
        elif key == b"transfer-encoding":
            codings.append(value)
    if size > head_rules.HEAD_BYTES_MAX or len(sent) > head_rules.HEADERS_MAX:
        return head_rules.TOO_LARGE
    return head_rules.flaw_in("1.1" if scope["http_version"] == "1.1" else "1.0", hosts, lengths, codings)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise IncompleteBodyError
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
