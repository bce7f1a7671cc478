"""Bytes in, requests out: llhttp finds them, piece by piece, within bounds and in fair turns."""

from typing import Final, Protocol, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from mauve.web import head_rules as heads
from mauve.web.http1.exchange import Exchange, Sender
from mauve.web.http1.head import KNOWN_BYTES_MAX, Head, Headers, KnownHeads
from mauve.web.http1.pieces import END, PIECE_BYTES_MAX, end_of_piece, tail

_PIECE_COST: Final = 256  # in bytes: what a piece takes, however short it is
_CHUNKED_BYTES_MAX: Final = 16  # for one byte of a body
_SHORT_HEAD_BYTES: Final = 4 * heads.HEADERS_MAX  # No shorter one has too many headers.
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class Taker(Sender, Protocol):
    """Who takes the requests."""

    def has_enough(self) -> bool:
        """Tell whether to read no further for now."""
        ...

    def take(self, exchange: Exchange) -> None:
        """Take a request whose head is complete."""
        ...

    def refuse(self, flaw: heads.Flaw) -> None:
        """Answer what is no request. Nothing is read behind it."""
        ...


class Reader:
    """Reads one connection. The parser calls `on_...`."""

    def __init__(self, taker: Taker, known: KnownHeads) -> None:
        self._taker = taker
        self._known = known
        self._parser = HttpRequestParser(self)
        self.arriving: Exchange | None = None  # The body of this one is not complete.
        self.is_deaf = False  # Whatever comes now is not looked at.
        self._url = b""
        self._headers: Headers = {}
        self._head: Head | None = None  # that was complete in the last piece
        self._received = 0  # since the last head or body was complete
        self._tail = b""  # the last bytes of that, where an end may begin
        self.left = b""  # what has arrived and must wait,
        self._left_from = 0  # from here on

    def read(self, data: bytearray, size: int) -> None:
        """Read what has arrived, and keep what must wait."""
        read = self._read(data, 0, size)
        if read < size and not self.is_deaf:
            self.left, self._left_from = bytes(memoryview(data)[read:size]), 0

    def read_on(self) -> None:
        """Read of what is left."""
        self._left_from = self._read(self.left, self._left_from, len(self.left))
        if self._left_from == len(self.left):
            self.left = b""

    def stop(self) -> None:
        self.is_deaf = True
        self.left = b""

    def close(self) -> None:
        """Let go of everything: the parser holds our methods, which is a circle."""
        self.stop()
        self._parser = self._taker = None  # type: ignore[assignment]

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.arriving is None:  # What comes behind a body is of no use to us.
            self._headers.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        if self._received > _SHORT_HEAD_BYTES and sum(map(len, headers.values())) > heads.HEADERS_MAX:
            raise _RefusedError(heads.TOO_LARGE)
        if parser.should_upgrade():
            return  # It is read again.
        keeps_alive = parser.should_keep_alive()
        version = "1.1" if keeps_alive and b"connection" not in headers else parser.get_http_version()
        if version not in _VERSIONS:
            raise _RefusedError(heads.NO_HTTP)
        flaw = heads.flaw_in(
            version,
            headers.get(b"host", ()),
            headers.get(b"content-length", ()),
            headers.get(b"transfer-encoding", ()),
        )
        if flaw is not None:
            raise _RefusedError(flaw)
        # To HTTP/1.0 the reply would have to say that the connection is kept.
        keeps_alive = keeps_alive and version == "1.1"
        self._received, self._tail = 0, b""
        self._head = Head(parser.get_method(), self._url, headers, keeps_alive=keeps_alive)
        self.arriving = Exchange(self._taker, self._head)
        self._taker.take(self.arriving)

    def on_body(self, piece: bytes) -> None:
        assert self.arriving is not None  # noqa: S101 - a body comes behind a head
        self.arriving.take(piece)

    def on_message_complete(self) -> None:
        if self.arriving is not None:
            self.arriving.complete()
            self.arriving = None
            self._received, self._tail = 0, b""

    def _read(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Read until there is enough, or for as long as is fair to other connections; return where we are."""
        view = memoryview(data)
        effort = 0
        while start < end and not self.is_deaf:
            body = self.arriving
            if body is not None and body.declared_bytes is not None:
                stop = min(end, start + body.declared_bytes - body.size)
                self._parse(view[start:stop])
            elif effort >= PIECE_BYTES_MAX or (effort and self._taker.has_enough()):
                break
            elif not self._received and body is None and (stop := self._take_known(data, view, start, end)):
                effort += stop - start + _PIECE_COST
            else:
                stop = end_of_piece(data, start, end, self._tail)
                is_whole_head = not self._received and body is None
                self._take_in(view[start:stop])
                if is_whole_head and self._head is not None:
                    self._known.remember(bytes(view[start:stop]), self._head)
                self._head = None
                if self._received:
                    self._tail = tail(self._tail, data, start, stop)
                effort += stop - start + _PIECE_COST
            start = stop
        return start

    def _take_known(self, data: bytes | bytearray, view: memoryview, start: int, end: int) -> int:
        """Take a request that is here whole and has a head that is known; return where it ends, 0 if it is not.

        It is not parsed again: the same bytes at the same place mean the same.
        """
        head_end = data.find(END, start, min(end, start + KNOWN_BYTES_MAX)) + len(END)
        head = self._known.get(bytes(view[start:head_end]))
        if head is None or (stop := head_end + cast("int", head.declared_bytes)) > end:
            return 0
        exchange = Exchange(self._taker, head)
        exchange.arrived = bytes(view[head_end:stop])
        exchange.is_complete = True
        self._taker.take(exchange)
        return stop

    def _take_in(self, piece: memoryview) -> None:
        """Read a piece of a head, or of a body in chunks: both need words, but not without end."""
        self._received += len(piece)
        if self.arriving is None and self._received > heads.HEAD_BYTES_MAX:
            self._refuse(heads.TOO_LARGE)
            return
        self._parse(piece)
        if self._received > heads.HEAD_BYTES_MAX and not self.is_deaf:
            size = 0 if self.arriving is None else self.arriving.size
            if self._received > heads.HEAD_BYTES_MAX + _CHUNKED_BYTES_MAX * size:
                self._refuse(heads.TOO_LARGE)

    def _parse(self, piece: memoryview) -> None:
        is_offered = False
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade:
            is_offered = True  # Not dealt with here: what fails in a handler has another context than its own.
        except HttpParserError as error:
            if not isinstance(error, HttpParserCallbackError):
                self._refuse(heads.NO_HTTP)
            elif isinstance(error.__context__, _RefusedError):
                self._refuse(error.__context__.flaw)
            else:
                raise
        if is_offered:
            self._parse_without_offer()

    def _parse_without_offer(self) -> None:
        """Read a head that offers another protocol again, without the offer: its body comes in this one."""
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            self._refuse(heads.NO_HTTP)
            return
        headers = {name: values for name, values in self._headers.items() if name != b"upgrade"}
        lines = [b"%b %b HTTP/%b" % (method, self._url, version.encode())]
        lines += [b"%b: %b" % (name, value) for name, values in headers.items() for value in values]
        self._parser = HttpRequestParser(self)
        self._parse(memoryview(b"\r\n".join([*lines, b"", b""])))

    def _refuse(self, flaw: heads.Flaw) -> None:
        self.stop()
        self._taker.refuse(flaw)


class _RefusedError(Exception):
    """What the parser takes for a request and we do not."""

    def __init__(self, flaw: heads.Flaw) -> None:
        super().__init__(flaw.text)
        self.flaw = flaw
