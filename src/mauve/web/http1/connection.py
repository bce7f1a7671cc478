"""One client's connection: bytes in, requests to whoever answers, replies out in the order of the requests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

import structlog
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from mauve.web.http1 import replies
from mauve.web.http1.exchange import Exchange, Headers
from mauve.web.messages import OpenRequest, Reply, json_reply

Answer = Callable[[OpenRequest], Awaitable[Reply]]

READ_BYTES: Final = 128 * 1024
HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 100
_CHUNKED_BYTES_MAX: Final = 16  # for one byte of a body
HEAD_SWEEPS_MAX: Final = 15  # also closes a connection that is kept alive and says nothing
_BODY_SWEEPS_MAX: Final = 10
_FAREWELL_SWEEPS_MAX: Final = 2
_NEVER: Final = 2**62
_VERSIONS: Final = frozenset({"1.0", "1.1"})

_NO_HTTP: Final = json_reply(
    HTTPStatus.BAD_REQUEST,
    {"ok": False, "error": "this is no valid HTTP/1.1 request: send plain HTTP/1.1, TLS ends at a proxy in front"},
)
_HEAD_TOO_LARGE: Final = json_reply(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    {"ok": False, "error": f"send at most {HEADERS_MAX} headers and {HEAD_BYTES_MAX} bytes of them"},
)
_FAILED: Final = json_reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"ok": False, "error": "internal error: retry"})

log = structlog.get_logger()


class Shared:
    """What the connections of a listener have in common."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        # One buffer for all: what arrived is taken out of it before anything else can arrive.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.connections: set[Connection] = set()
        self.sweep = 0  # our clock: a timer for each request would cost more than a small request does
        self.date = b""
        self.is_stopping = False
        self.came: Callable[[], None] = lambda: None  # called when a connection is there
        self.left: Callable[[], None] = lambda: None  # and when it is gone


class Connection(asyncio.BufferedProtocol):
    """The parser calls `on_...`, the event loop everything else without an underscore."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._transport: asyncio.Transport
        self._parser = HttpRequestParser(self)
        self._line: deque[Exchange] = deque()  # The first is being answered, the others wait behind it.
        self._arriving: Exchange | None = None
        self._url = b""
        self._headers: Headers = {}
        self._received = 0  # since the last head, body or trailer was complete
        self._overdue_at = _NEVER
        self._is_paused = False
        self._is_unheard = False  # The client does not read our replies.
        self._is_deaf = False  # Whatever comes now is not looked at.
        self._is_last = False  # Nobody speaks after those in the line.
        self._refusal: Reply | None = None  # what the last in the line is told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._shared.connections.add(self)
        self._shared.came()
        self._expect_within(HEAD_SWEEPS_MAX)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_deaf:
            return
        self._read(self._shared.buffer[:nbytes])
        if self._arriving is not None or len(self._line) > 1:
            self._hold_back()

    def eof_received(self) -> bool:
        """Answer who has stopped sending, if there is something to answer."""
        self._is_last = True
        if self._arriving is not None:
            self._arriving.cut_off()
        return bool(self._line)

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_deaf = True
        if self._arriving is not None:
            self._arriving.cut_off()
        self._parser = None  # type: ignore[assignment]  # It holds our methods: a circle.
        self._shared.connections.discard(self)
        self._shared.left()

    def pause_writing(self) -> None:
        self._is_unheard = True
        self._hold_back()

    def resume_writing(self) -> None:
        self._is_unheard = False
        self._hold_back()

    def look(self) -> None:
        """End what has taken too long. Called once a second."""
        if self._shared.sweep < self._overdue_at:
            return
        self._overdue_at = _NEVER
        if self._arriving is not None and not self._is_deaf:
            self._arriving.cut_off()
        else:
            self._transport.abort()

    def wind_down(self) -> None:
        """End as soon as what is under way is answered."""
        if not self._line:
            self._transport.close()

    def give_up(self) -> None:
        """End now, whatever is under way."""
        self._transport.abort()

    def send_on(self, exchange: Exchange) -> None:
        if exchange.expects_continue:
            self._transport.write(replies.CONTINUE)
        self._expect_within(_BODY_SWEEPS_MAX)
        self._hold_back()

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._arriving is None:  # What comes behind a body is of no use to us.
            self._headers.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        if len(headers) > HEADERS_MAX:
            raise _RefusedError(_HEAD_TOO_LARGE)
        if parser.should_upgrade():
            return  # It is read again.
        keeps_alive = parser.should_keep_alive()
        if not keeps_alive or b"connection" in headers:
            version = parser.get_http_version()
            if version not in _VERSIONS:
                raise _RefusedError(_NO_HTTP)
            keeps_alive = keeps_alive and version == "1.1"  # Before, the reply would have had to say so.
        exchange = Exchange(self, parser.get_method(), self._url, headers, keeps_alive=keeps_alive)
        self._received = 0
        self._overdue_at = _NEVER
        self._arriving = exchange
        self._line.append(exchange)
        if len(self._line) == 1:
            self._begin_next()

    def on_body(self, piece: bytes) -> None:
        assert self._arriving is not None  # noqa: S101 - a body comes behind a head
        self._arriving.take(piece)

    def on_message_complete(self) -> None:
        if self._arriving is not None:
            self._arriving.complete()
            self._arriving = None
            self._received = 0
            self._overdue_at = _NEVER

    def _read(self, received: memoryview) -> None:
        self._received += len(received)
        try:
            self._parser.feed_data(received)
        except HttpParserUpgrade as offer:
            self._read_without_offer(received[offer.args[0] :])
        except HttpParserError as error:
            if not isinstance(error, HttpParserCallbackError):
                self._refuse(_NO_HTTP)
            elif isinstance(error.__context__, _RefusedError):
                self._refuse(error.__context__.reply)
            else:
                raise
        else:
            if self._received > HEAD_BYTES_MAX and self._received > self._received_max():
                self._refuse(_HEAD_TOO_LARGE)

    def _read_without_offer(self, rest: memoryview) -> None:
        """Read a request that offers another protocol again, without the offer: its body comes in this one."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(_NO_HTTP)
            return
        lines = [b"%b %b HTTP/1.1" % (method, self._url)]
        lines += [
            b"%b: %b" % (name, value) for name in self._headers.keys() - {b"upgrade"} for value in self._headers[name]
        ]
        self._parser = HttpRequestParser(self)
        self._read(memoryview(b"\r\n".join([*lines, b"", b""])))
        if not self._is_deaf:
            self._read(rest)

    def _received_max(self) -> int:
        """Return how much may come for what is there: chunks need words around them, but not without end."""
        return HEAD_BYTES_MAX + (0 if self._arriving is None else _CHUNKED_BYTES_MAX * self._arriving.size)

    def _refuse(self, reply: Reply) -> None:
        """Answer what is no request, when those before it are answered."""
        self._is_deaf = self._is_last = True
        if self._arriving is not None:
            self._arriving.cut_off()
            return
        self._overdue_at = _NEVER
        self._refusal = reply
        self._line.append(Exchange(self, b"GET", b"*", {}, keeps_alive=False))
        if len(self._line) == 1:
            self._begin_next()

    def _begin_next(self) -> None:
        exchange = self._line[0]
        if self._refusal is not None and len(self._line) == 1:
            self._send(exchange, self._refusal)
        else:
            exchange.task = self._loop.create_task(self._answer(exchange))

    async def _answer(self, exchange: Exchange) -> None:
        try:
            reply = await self._shared.answer(exchange)
        except Exception:
            log.exception("not_answered", path=exchange.path)
            reply = _FAILED
        self._send(exchange, reply)

    def _send(self, exchange: Exchange, reply: Reply) -> None:
        self._line.popleft()
        if self._transport.is_closing():
            return
        closes = (
            not exchange.keeps_alive
            or not exchange.is_complete
            or self._shared.is_stopping
            or (self._is_last and not self._line)
            or "connection" in reply.headers
        )
        date = self._shared.date
        self._transport.write(replies.encode(reply, date, closes=closes, is_to_head=exchange.method == "HEAD"))
        if closes:
            self._end(exchange)
        elif self._line:
            self._begin_next()
        else:
            self._expect_within(HEAD_SWEEPS_MAX)
        if self._is_paused:
            self._hold_back()

    def _end(self, exchange: Exchange) -> None:
        """Close behind the last reply. Who is still sending is listened to for a moment, and so can read it."""
        self._is_deaf = self._is_last = True
        self._line.clear()
        if exchange.is_complete:
            self._transport.close()
        else:
            self._transport.write_eof()
            self._expect_within(_FAREWELL_SWEEPS_MAX)

    def _expect_within(self, sweeps: int) -> None:
        self._overdue_at = self._shared.sweep + sweeps + 1

    def _hold_back(self) -> None:
        """Read on or not: no more than one request in advance, and no large body before it is asked for."""
        has_enough = self._is_unheard or len(self._line) > 1 or (bool(self._line) and self._line[0].is_held_back)
        if has_enough is self._is_paused or self._transport.is_closing():
            return
        self._is_paused = has_enough
        if has_enough:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class _RefusedError(Exception):
    """What the parser takes for a request and we do not."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply
