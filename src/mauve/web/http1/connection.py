"""One client connection: pass requests to the plane, write replies in request order, and enforce deadlines."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast

import structlog

from mauve.overload.fair_share import PerAddress
from mauve.web.body import Pace
from mauve.web.head_rules import Flaw
from mauve.web.health import Drain
from mauve.web.http1.reader import Reader
from mauve.web.http1.request import Head, HeadCache, IncomingRequest
from mauve.web.messages import JSON, OpenRequest, Reply, json_reply

Answer = Callable[[OpenRequest], Awaitable[Reply]]
Send = Callable[[Reply], None]
Begin = Callable[[OpenRequest, Send], bool]  # False: use `Answer`

READ_BYTES: Final = 128 * 1024
HEAD_S_MAX: Final = 15  # also the keep-alive timeout of an idle connection
_LINGER_S_MAX: Final = 2
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({int(HTTPStatus.NO_CONTENT), int(HTTPStatus.NOT_MODIFIED)})
_CLOSING: Final = b"connection: close\r\n"
# Nearly all replies share one headers object; the rest differ in a number.
_HEADS_MAX: Final = 64
_heads: dict[int, tuple[Mapping[str, str], int, bytes]] = {}
_NEVER: Final = 2**62
_NO_HEAD: Final = Head(b"GET", b"*", {}, keeps_alive=False)

_FAILED: Final = json_reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"ok": False, "error": "internal error: retry"})
_TOO_MANY_CONNECTIONS: Final = Reply(
    HTTPStatus.SERVICE_UNAVAILABLE,
    b'{"ok":false,"error":"this address has too many connections: close some of them, then retry"}',
    {**JSON, "retry-after": "1"},
)

log = structlog.get_logger()


def begin_nothing(_request: OpenRequest, _send: Send) -> bool:
    return False


class SharedState:
    """State shared by all connections of a listener."""

    def __init__(
        self, answer: Answer, per_address: int = 0, drain: Drain | None = None, begin: Begin = begin_nothing
    ) -> None:
        self.answer = answer
        self.begin = begin
        self.drain = drain or Drain()
        self.addresses = PerAddress(per_address, "connections")
        # One read buffer for all connections: each read is copied out of it before the next one starts.
        self.bytes = bytearray(READ_BYTES)
        self.buffer = memoryview(self.bytes)
        self.head_cache = HeadCache()
        self.connections: set[Connection] = set()
        self.now_s = 0  # advanced by the listener: a timer per request would cost more than a small request
        self.date = b""
        self.is_stopping = False
        self.on_connect: Callable[[], None] = lambda: None
        self.on_disconnect: Callable[[], None] = lambda: None


class Connection(asyncio.BufferedProtocol):
    """The reader calls `should_pause`, `on_request` and `on_bad_request`; the event loop and the listener the rest."""

    def __init__(self, shared: SharedState, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._reader = Reader(self, shared.head_cache)
        self._transport: asyncio.Transport
        self._address: str | None = None  # set if it counts toward the limit per address
        self._pipeline: deque[IncomingRequest] = deque()  # The first is being answered, the others wait.
        self._answering: asyncio.Task[None] | None = None  # One task, created at the first request, serves them all.
        self._wake: asyncio.Future[None] | None = None  # set while that task waits for a request
        self._deadline_s = _NEVER
        self._waits_since_s = shared.now_s
        self._linger_ends_s = _NEVER  # set once the last reply is written
        self._read_paused = False
        self._read_scheduled = False  # for the unread bytes, in the next round of the event loop
        self._write_paused = False  # The client does not read our replies.
        self._is_lost = False
        self._input_ended = False  # No request follows those in the pipeline.
        self._client_ended = False  # The client has closed its side.
        self._bad_request_reply: Reply | None = None  # for the last request in the pipeline

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = str((transport.get_extra_info("peername") or [""])[0])
        if not self._shared.addresses.enter(address):
            self._reject_connection()
            return
        self._address = address
        self._shared.connections.add(self)
        self._shared.on_connect()
        self._set_deadline(HEAD_S_MAX)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if reader.discarding:
            return
        try:
            reader.read(self._shared.bytes, nbytes)
        except Exception as error:  # noqa: BLE001 - any failure ends this connection and no other
            self._fail(error)
        if reader.receiving is not None or reader.unread or len(self._pipeline) > 1:
            self._update_flow()

    def eof_received(self) -> bool:
        """Keep the connection open for writing while replies are due."""
        self._input_ended = self._client_ended = True
        if self._reader.receiving is not None:
            self._reader.receiving.abort_body()
        return bool(self._pipeline)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._reader.receiving is not None:
            self._reader.receiving.abort_body()
        self._reader.close()
        self._is_lost = True
        if self._answering is not None:
            self._start_answering()
        if self._address is not None:
            self._shared.addresses.leave(self._address)
            self._shared.connections.discard(self)
            self._shared.on_disconnect()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._update_flow()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._update_flow()

    def check_deadline(self) -> None:
        """Give up on a slow body or an idle connection. Called once a second."""
        reader = self._reader
        if reader.receiving is not None and not reader.discarding:
            reader.receiving.check_deadline(self._shared.now_s)
            return
        has_lingered = self._shared.now_s >= self._linger_ends_s and not self._transport.get_write_buffer_size()
        if self._shared.now_s >= self._deadline_s or has_lingered:
            self._deadline_s = self._linger_ends_s = _NEVER
            self._transport.abort()

    @property
    def waits_since_s(self) -> float:
        """Return since when it has waited for its client to send a request; infinity if it does not."""
        is_waiting = not self._pipeline or not (self._pipeline[0].is_complete or self._pipeline[0].is_held_back)
        return self._waits_since_s if is_waiting and not self._transport.is_closing() else math.inf

    def close_if_idle(self) -> None:
        """Close, unless requests in flight or the last reply will close the connection."""
        if not self._pipeline and self._linger_ends_s == _NEVER:
            self._transport.close()

    def abort(self) -> None:
        """Close now, even if requests are in flight."""
        self._transport.abort()

    def resume_body(self, request: IncomingRequest) -> None:
        if request.expects_continue:
            self._transport.write(_CONTINUE)
        request.pace = Pace(self._shared.now_s)
        self._update_flow()

    def should_pause(self) -> bool:
        """Return whether to stop reading: after one request ahead, or until a large body is wanted."""
        return (
            self._write_paused or len(self._pipeline) > 1 or (bool(self._pipeline) and self._pipeline[0].is_held_back)
        )

    def on_request(self, request: IncomingRequest) -> None:
        self._deadline_s = _NEVER
        self._pipeline.append(request)
        if len(self._pipeline) == 1 and not self._shared.begin(request, self._send_first):
            self._start_answering()

    def on_bad_request(self, flaw: Flaw) -> None:
        """Reply to input that is not a valid request, after the replies to the requests before it."""
        self._input_ended = True
        if self._reader.receiving is not None:
            self._reader.receiving.abort_body()
            return
        self._deadline_s = _NEVER
        self._bad_request_reply = json_reply(flaw.status, {"ok": False, "error": flaw.text})
        self._pipeline.append(IncomingRequest(self, _NO_HEAD))
        if len(self._pipeline) == 1:
            self._start_answering()

    def _reject_connection(self) -> None:
        """Send 503 and close, without reading anything."""
        self._reader.stop()
        self._transport.write(encode(_TOO_MANY_CONNECTIONS, self._shared.date, closes=True, is_to_head=False))
        self._transport.close()

    def _fail(self, error: Exception) -> None:
        log.error("connection_failed", exc_info=error)
        self._reader.stop()
        self._transport.abort()

    def _read_more(self) -> None:
        """Continue with the unread bytes, after other connections have been served."""
        self._read_scheduled = False
        if not self._reader.unread or self.should_pause():
            return
        try:
            self._reader.read_more()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        self._update_flow()

    def _start_answering(self) -> None:
        """Start the answering task, or wake it."""
        if self._answering is None:
            self._answering = self._loop.create_task(self._answer_all())
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _answer_all(self) -> None:
        """Answer until the connection is lost. Without this task nothing would: abort the connection if it fails."""
        try:
            await self._answer_pipeline()
        except BaseException as error:
            self._transport.abort()
            if not isinstance(error, Exception):
                raise
            log.exception("connection_failed")

    async def _answer_pipeline(self) -> None:
        while not self._is_lost:
            if not self._pipeline:
                self._wake = self._loop.create_future()
                await self._wake
                continue
            request = self._pipeline[0]
            if self._bad_request_reply is not None and len(self._pipeline) == 1:
                reply = self._bad_request_reply
            else:
                try:
                    reply = await self._shared.answer(request)
                except Exception:
                    log.exception("not_answered", path=request.path)
                    reply = _FAILED
            self._send(request, reply)

    def _send_first(self, reply: Reply) -> None:
        """Send the reply to a request that was begun without the task, which answers those that came since."""
        try:
            self._send(self._pipeline[0], reply)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        if self._pipeline:
            self._start_answering()

    def _send(self, request: IncomingRequest, reply: Reply) -> None:
        self._pipeline.popleft()
        if self._transport.is_closing():
            return
        closes = (
            not request.head.keeps_alive
            or not request.is_complete
            or self._shared.drain.is_on
            or self._shared.is_stopping
            or (self._input_ended and not self._pipeline)
            or "connection" in reply.headers
        )
        date = self._shared.date
        self._transport.write(encode(reply, date, closes=closes, is_to_head=request.method == "HEAD"))
        if closes:
            self._close_after(request)
        elif not self._pipeline:
            self._set_deadline(HEAD_S_MAX)
        if self._read_paused:
            self._update_flow()

    def _close_after(self, request: IncomingRequest) -> None:
        """Close after the last reply. Linger if the client may be sending more: a reset could destroy the reply."""
        is_last_request = request.is_complete and (self._client_ended or not request.head.keeps_alive)
        self._input_ended = True
        self._reader.stop()
        self._pipeline.clear()
        self._set_deadline(HEAD_S_MAX)  # for a client that does not read the reply
        if is_last_request:
            self._transport.close()
        else:
            self._transport.write_eof()
            self._linger_ends_s = self._shared.now_s + _LINGER_S_MAX + 1

    def _set_deadline(self, seconds: int) -> None:
        self._waits_since_s = self._shared.now_s
        self._deadline_s = self._shared.now_s + seconds + 1

    def _update_flow(self) -> None:
        """Pause or resume reading from the socket: never resume while received bytes are unread."""
        has_unread, should_pause = bool(self._reader.unread), self.should_pause()
        if has_unread and not should_pause and not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read_more)
        should_pause = has_unread or should_pause
        if should_pause is self._read_paused or self._transport.is_closing():
            return
        self._read_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def date_line(now_s: float) -> bytes:
    """Return the Date header, which is the same for a second."""
    return b"date: %b\r\n" % formatdate(now_s, usegmt=True).encode()


def encode(reply: Reply, date: bytes, *, closes: bool, is_to_head: bool) -> bytes:
    """Return the bytes of a reply. If `closes`, announce that the connection ends after it."""
    cached = _heads.get(id(reply.headers))
    if cached is None or cached[0] is not reply.headers or cached[1] != reply.status:
        cached = _cached_head(reply.status, reply.headers)
    head = cached[2]
    closing = _CLOSING if closes and "connection" not in reply.headers else b""
    if reply.status in _WITHOUT_BODY:
        return b"%b%b%b\r\n" % (head, date, closing)
    body = b"" if is_to_head else reply.body
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (head, date, closing, len(reply.body), body)


def _cached_head(status: int, headers: Mapping[str, str]) -> tuple[Mapping[str, str], int, bytes]:
    """Encode the head of a reply and cache it by the identity of its headers.

    The cache holds the headers too, so that their id cannot be reused for others.
    """
    if len(_heads) >= _HEADS_MAX:
        _heads.clear()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    cached = _heads[id(headers)] = (headers, status, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))
    return cached
