"""One request on a connection, whose body may still be arriving."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from mauve.core.problems import Busy
from mauve.web.body import DRAIN_BYTES_MAX, BodyTooLargeError, IncompleteBodyError, Pace, never
from mauve.web.head_rules import Flaw
from mauve.web.http1.head import PREREAD_BYTES_MAX, Head

_PIECES_MAX: Final = 256  # A piece may be a single byte: join them before the list outweighs the body.


class RequestSink(Protocol):
    """The connection, as the reader and its requests use it."""

    def should_pause(self) -> bool:
        """Return whether to stop reading for now."""
        ...

    def on_request(self, request: "IncomingRequest") -> None:
        """Accept a request whose head is complete."""
        ...

    def on_bad_request(self, flaw: Flaw) -> None:
        """Reply to input that is not a valid request. Nothing is read after it."""
        ...

    def resume_body(self, request: "IncomingRequest") -> None:
        """Read the rest of the body."""
        ...


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

    def __init__(self, sink: RequestSink, head: Head) -> None:
        self._sink = sink
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
        self._sink.resume_body(self)
        await self._body_ready

    def _set_ready(self) -> None:
        if self._body_ready is not None and not self._body_ready.done():
            self._body_ready.set_result(None)
