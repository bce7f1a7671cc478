"""One request on a connection: its head, which may be cached, and its body, which may still be arriving."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from httptools import HttpParserInvalidURLError, parse_url

from mauve.core.problems import Busy
from mauve.web.body import DRAIN_BYTES_MAX, BodyTooLargeError, IncompleteBodyError, Pace, declared_size, never

if TYPE_CHECKING:
    from mauve.web.http1.connection import Connection

CACHED_HEADS_MAX: Final = 512
CACHED_HEAD_BYTES_MAX: Final = 2048  # Longer heads are parsed each time.
PREREAD_BYTES_MAX: Final = 64 * 1024  # Read this much of a body before the plane asks for it.
_PIECES_MAX: Final = 256  # A piece may be a single byte: join them before the list outweighs the body.

Headers = dict[bytes, list[bytes]]  # by lowercase name


class Head:
    """Everything before the body. Immutable: requests share it."""

    __slots__ = ("_headers", "_values", "declared_bytes", "expects_continue", "keeps_alive", "method", "path", "query")

    def __init__(self, method: bytes, url: bytes, headers: Headers, *, keeps_alive: bool) -> None:
        self.method = method.decode()
        self.path = path_of(url)
        self.query = url.partition(b"#")[0].partition(b"?")[2]
        self._values = headers
        self._headers: dict[str, str | None] = {}  # decoded on first use
        self.keeps_alive = keeps_alive
        self.declared_bytes = declared_size(self.header("content-length"))
        self.expects_continue = b"expect" in headers and (self.header("expect") or "").lower() == "100-continue"

    def header(self, name: str) -> str | None:
        try:
            return self._headers[name]
        except KeyError:
            values = self._values.get(name.encode())
            value = None if values is None else b", ".join(values).decode("latin-1")
            self._headers[name] = value
            return value

    def header_values(self, name: str) -> list[str]:
        return [value.decode("latin-1") for value in self._values.get(name.encode(), ())]


class HeadCache:
    """Parsed heads by their bytes. A client that reuses a connection repeats its head byte for byte."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self.get = self._heads.get

    def __len__(self) -> int:
        return len(self._heads)

    def add(self, text: bytes, head: Head) -> None:
        """Cache a head if its body is small and of declared length, and the connection stays open after it."""
        is_small = head.declared_bytes is not None and head.declared_bytes <= PREREAD_BYTES_MAX
        if len(text) > CACHED_HEAD_BYTES_MAX or not is_small or not head.keeps_alive or head.expects_continue:
            return
        if len(self._heads) >= CACHED_HEADS_MAX:
            self._heads.clear()
        self._heads[text] = head


def path_of(url: bytes) -> str:
    """Return the decoded path. Leave a path with an escaped slash as it is, so that it matches no route."""
    if not url.startswith(b"/"):
        try:
            url = parse_url(url).path or b"/"
        except HttpParserInvalidURLError:  # `*`, or an address without a scheme
            return url.decode("latin-1")
    path = url.partition(b"?")[0].partition(b"#")[0].decode("latin-1")
    return unquote(path, errors="replace") if "%" in path and "%2f" not in path.lower() else path


class IncomingRequest:
    """A request whose head is complete. The body is already buffered, or is read when the plane asks for it."""

    # Class attributes: most requests never change them, and need no copy of their own.
    buffered_body: bytes | None = None
    is_body_wanted = False
    is_complete = False
    is_aborted = False
    pace: Pace | None = None  # set once the body is wanted
    _bytes_max = DRAIN_BYTES_MAX  # Until the body is wanted, backpressure bounds it.
    _body_ready: asyncio.Future[None] | None = None

    def __init__(self, connection: "Connection", head: Head) -> None:
        self._connection = connection
        self.head = head
        self.header = head.header
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.declared_bytes = head.declared_bytes
        self.size = 0
        self._pieces: list[bytes] = []
        self._should_evict = never

    def header_values(self, name: str) -> list[str]:
        return self.head.header_values(name)

    @property
    def expects_continue(self) -> bool:
        """Return whether the client waits for 100 Continue before it sends the body."""
        return self.head.expects_continue and not self.size

    @property
    def is_held_back(self) -> bool:
        """Return whether enough of the body is buffered until the plane asks for it."""
        return not self.is_complete and not self.is_body_wanted and self.size > PREREAD_BYTES_MAX

    async def body(self, bytes_max: int, should_evict: Callable[[], bool] = never) -> bytes:
        self._bytes_max = bytes_max
        self._should_evict = should_evict
        if self.buffered_body is not None:
            if len(self.buffered_body) > bytes_max:
                raise BodyTooLargeError
            return self.buffered_body
        if not self.is_complete:
            if self.expects_continue and (self.declared_bytes or 0) > bytes_max:
                raise BodyTooLargeError
            await self._receive_rest()
        if self.size > bytes_max:
            raise BodyTooLargeError
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def feed(self, piece: bytes) -> None:
        """Add a piece to the body. Drain an oversized body, up to a bound, without keeping it.

        A client that is still writing would otherwise see a reset connection instead of our reply.
        """
        self.size += len(piece)
        if self.size <= self._bytes_max:
            self._pieces.append(piece)
            if len(self._pieces) == _PIECES_MAX:
                self._pieces = [b"".join(self._pieces)]
            return
        self._pieces.clear()
        if self.size > DRAIN_BYTES_MAX:
            self._set_ready()

    def complete(self) -> None:
        self.is_complete = True
        if not self.is_body_wanted and self.size <= PREREAD_BYTES_MAX:
            self.buffered_body = b"".join(self._pieces)
        self._set_ready()

    def abort_body(self, reason: Exception | None = None) -> None:
        """Stop waiting for the rest of the body."""
        self.is_aborted = True
        if self._body_ready is not None and not self._body_ready.done():
            self._body_ready.set_exception(reason or IncompleteBodyError())

    def check_deadline(self, now_s: float) -> None:
        """Abort a body that arrives too slowly."""
        if self.pace is None:
            return
        if self.pace.is_late(now_s, self.size):
            self.abort_body()
        elif self.pace.is_slow(now_s) and self._should_evict():
            self.abort_body(Busy())

    async def _receive_rest(self) -> None:
        if self.is_aborted:
            raise IncompleteBodyError
        self.is_body_wanted = True
        self._body_ready = asyncio.get_running_loop().create_future()
        self._connection.resume_body(self)
        await self._body_ready

    def _set_ready(self) -> None:
        if self._body_ready is not None and not self._body_ready.done():
            self._body_ready.set_result(None)
