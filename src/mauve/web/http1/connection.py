"""One client's connection: requests to whoever answers, replies out in the order of the requests, and in time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, cast

import structlog

from mauve.overload.per_address import PerAddress
from mauve.web.body import Pace
from mauve.web.head_rules import Flaw
from mauve.web.http1 import replies
from mauve.web.http1.exchange import Exchange
from mauve.web.http1.head import Head, KnownHeads
from mauve.web.http1.reading import Reader
from mauve.web.messages import JSON, OpenRequest, Reply, json_reply

Answer = Callable[[OpenRequest], Awaitable[Reply]]

READ_BYTES: Final = 128 * 1024
HEAD_SWEEPS_MAX: Final = 15  # also closes a connection that is kept alive and says nothing
_FAREWELL_SWEEPS_MAX: Final = 2
_NEVER: Final = 2**62
_NO_HEAD: Final = Head(b"GET", b"*", {}, keeps_alive=False)

_FAILED: Final = json_reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"ok": False, "error": "internal error: retry"})
_ONE_TOO_MANY: Final = Reply(
    HTTPStatus.SERVICE_UNAVAILABLE,
    b'{"ok":false,"error":"this address has too many connections: close some of them, then retry"}',
    {**JSON, "retry-after": "1"},
)

log = structlog.get_logger()


class Shared:
    """What the connections of a listener have in common."""

    def __init__(self, answer: Answer, per_address: int = 0) -> None:
        self.answer = answer
        self.addresses = PerAddress(per_address, "connections")
        # One buffer for all: what arrived is taken out of it before anything else can arrive.
        self.bytes = bytearray(READ_BYTES)
        self.buffer = memoryview(self.bytes)
        self.known_heads = KnownHeads()
        self.connections: set[Connection] = set()
        self.sweep = 0  # our clock: a timer for each request would cost more than a small request does
        self.date = b""
        self.is_stopping = False
        self.came: Callable[[], None] = lambda: None  # called when a connection is there
        self.left: Callable[[], None] = lambda: None  # and when it is gone


class Connection(asyncio.BufferedProtocol):
    """The reader calls `has_enough`, `take` and `refuse`, the event loop and the listener the rest."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._reader = Reader(self, shared.known_heads)
        self._transport: asyncio.Transport
        self._address: str | None = None  # if it is counted
        self._line: deque[Exchange] = deque()  # The first is being answered, the others wait behind it.
        self._answering: asyncio.Task[None] | None = None  # from the first request on: one task serves them all
        self._wake: asyncio.Future[None] | None = None  # while the line is empty
        self._overdue_at = _NEVER
        self._is_paused = False
        self._is_reading_on = False  # as soon as others had their turn
        self._is_unheard = False  # The client does not read our replies.
        self._is_gone = False
        self._is_last = False  # Nobody speaks after those in the line.
        self._refusal: Reply | None = None  # what the last in the line is told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = str((transport.get_extra_info("peername") or [""])[0])
        if not self._shared.addresses.enter(address):
            self._turn_away()
            return
        self._address = address
        self._shared.connections.add(self)
        self._shared.came()
        self._expect_within(HEAD_SWEEPS_MAX)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if reader.is_deaf:
            return
        try:
            reader.read(self._shared.bytes, nbytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this connection and nothing else
            self._fail(error)
        if reader.arriving is not None or reader.left or len(self._line) > 1:
            self._hold_back()

    def eof_received(self) -> bool:
        """Answer who has stopped sending, if there is something to answer."""
        self._is_last = True
        if self._reader.arriving is not None:
            self._reader.arriving.cut_off()
        return bool(self._line)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._reader.arriving is not None:
            self._reader.arriving.cut_off()
        self._reader.close()
        self._is_gone = True
        if self._answering is not None:
            self._begin()
        if self._address is not None:
            self._shared.addresses.leave(self._address)
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
        reader = self._reader
        if reader.arriving is not None and not reader.is_deaf:
            reader.arriving.look(self._shared.sweep)
        elif self._shared.sweep >= self._overdue_at:
            self._overdue_at = _NEVER
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
        exchange.pace = Pace(self._shared.sweep)
        self._hold_back()

    def has_enough(self) -> bool:
        """Tell whether to read no further: one request in advance will do, and a large body waits to be asked for."""
        return self._is_unheard or len(self._line) > 1 or (bool(self._line) and self._line[0].is_held_back)

    def take(self, exchange: Exchange) -> None:
        self._overdue_at = _NEVER
        self._line.append(exchange)
        if len(self._line) == 1:
            self._begin()

    def refuse(self, flaw: Flaw) -> None:
        """Answer what is no request, when those before it are answered."""
        self._is_last = True
        if self._reader.arriving is not None:
            self._reader.arriving.cut_off()
            return
        self._overdue_at = _NEVER
        self._refusal = json_reply(flaw.status, {"ok": False, "error": flaw.text})
        self._line.append(Exchange(self, _NO_HEAD))
        if len(self._line) == 1:
            self._begin()

    def _turn_away(self) -> None:
        """Say that there is no room for this one, and close. It is not listened to."""
        self._reader.stop()
        self._transport.write(replies.encode(_ONE_TOO_MANY, self._shared.date, closes=True, is_to_head=False))
        self._transport.close()

    def _fail(self, error: Exception) -> None:
        log.error("connection_failed", exc_info=error)
        self._reader.stop()
        self._transport.abort()

    def _read_on(self) -> None:
        """Read what is left, now that others had their turn."""
        self._is_reading_on = False
        if not self._reader.left or self.has_enough():
            return
        try:
            self._reader.read_on()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        self._hold_back()

    def _begin(self) -> None:
        """Answer the first in the line."""
        if self._answering is None:
            self._answering = self._loop.create_task(self._answer_all())
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _answer_all(self) -> None:
        while not self._is_gone:
            if not self._line:
                self._wake = self._loop.create_future()
                await self._wake
                continue
            exchange = self._line[0]
            if self._refusal is not None and len(self._line) == 1:
                reply = self._refusal
            else:
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
            not exchange.head.keeps_alive
            or not exchange.is_complete
            or self._shared.is_stopping
            or (self._is_last and not self._line)
            or "connection" in reply.headers
        )
        date = self._shared.date
        self._transport.write(replies.encode(reply, date, closes=closes, is_to_head=exchange.method == "HEAD"))
        if closes:
            self._end(exchange)
        elif not self._line:
            self._expect_within(HEAD_SWEEPS_MAX)
        if self._is_paused:
            self._hold_back()

    def _end(self, exchange: Exchange) -> None:
        """Close behind the last reply. Who is still sending is listened to for a moment, and so can read it."""
        self._is_last = True
        self._reader.stop()
        self._line.clear()
        if exchange.is_complete:
            self._transport.close()
        else:
            self._transport.write_eof()
            self._expect_within(_FAREWELL_SWEEPS_MAX)

    def _expect_within(self, sweeps: int) -> None:
        self._overdue_at = self._shared.sweep + sweeps + 1

    def _hold_back(self) -> None:
        """Let more arrive or not: not before everything that has arrived is read."""
        has_left, is_enough = bool(self._reader.left), self.has_enough()
        if has_left and not is_enough and not self._is_reading_on:
            self._is_reading_on = True
            self._loop.call_soon(self._read_on)
        is_to_pause = has_left or is_enough
        if is_to_pause is self._is_paused or self._transport.is_closing():
            return
        self._is_paused = is_to_pause
        if is_to_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
