"""Parse requests out of the received bytes with llhttp, within bounds and in fair portions.

The bytes are cut into pieces, none of which extends past the end of a request. So the length of a head is known to
the byte, and the parser sees nothing of the next request before it is due.
"""

from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from mauve.web import head_rules
from mauve.web.http1.request import CACHED_HEAD_BYTES_MAX, Head, HeadCache, Headers, IncomingRequest

if TYPE_CHECKING:
    from mauve.web.http1.connection import Connection

_PIECE_BYTES_MAX: Final = 16 * 1024
_PIECE_COST: Final = 256  # in bytes: the fixed cost of a piece, however short
_END: Final = b"\r\n\r\n"  # of every head, and of every chunked body
_TAIL_BYTES: Final = len(_END) - 1
_CHUNKED_BYTES_MAX: Final = 16  # for one byte of a body
_SHORT_HEAD_BYTES: Final = 4 * head_rules.HEADERS_MAX  # A shorter head cannot hold too many headers.
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class Reader:
    """Read one connection. The parser calls the `on_…` methods."""

    def __init__(self, connection: "Connection", head_cache: HeadCache) -> None:
        self._connection = connection
        self._head_cache = head_cache
        self._parser = HttpRequestParser(self)
        self.receiving: IncomingRequest | None = None  # the request whose body is incomplete
        self.discarding = False
        self._url = b""
        self._headers: Headers = {}
        self._head: Head | None = None  # completed by the last piece
        self._received = 0  # bytes since the last complete head or body
        self._tail = b""  # the last of those bytes, which may begin an end mark
        self.unread = b""  # received bytes that must wait,
        self._unread_from = 0  # from this offset on

    def read(self, data: bytearray, size: int) -> None:
        """Read the received bytes, and keep the rest for `read_more`."""
        read = self._read(data, 0, size)
        if read < size and not self.discarding:
            self.unread, self._unread_from = bytes(memoryview(data)[read:size]), 0

    def read_more(self) -> None:
        """Read the next portion of the unread bytes."""
        self._unread_from = self._read(self.unread, self._unread_from, len(self.unread))
        if self._unread_from == len(self.unread):
            self.unread = b""

    def stop(self) -> None:
        """Discard all further input."""
        self.discarding = True
        self.unread = b""

    def close(self) -> None:
        """Break the reference cycle with the parser, which holds our bound methods."""
        self.stop()
        self._parser = self._connection = None  # type: ignore[assignment]

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.receiving is None:  # Trailers are ignored.
            self._headers.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        if self._received > _SHORT_HEAD_BYTES and sum(map(len, headers.values())) > head_rules.HEADERS_MAX:
            raise _BadHeadError(head_rules.TOO_LARGE)
        if parser.should_upgrade():
            return  # `_parse_without_upgrade` parses it again.
        keeps_alive = parser.should_keep_alive()
        version = "1.1" if keeps_alive and b"connection" not in headers else parser.get_http_version()
        if version not in _VERSIONS:
            raise _BadHeadError(head_rules.NO_HTTP)
        flaw = head_rules.flaw_in(
            version,
            headers.get(b"host", ()),
            headers.get(b"content-length", ()),
            headers.get(b"transfer-encoding", ()),
        )
        if flaw is not None:
            raise _BadHeadError(flaw)
        # A reply to HTTP/1.0 would have to announce keep-alive.
        keeps_alive = keeps_alive and version == "1.1"
        self._received, self._tail = 0, b""
        self._head = Head(parser.get_method(), self._url, headers, keeps_alive=keeps_alive)
        self.receiving = IncomingRequest(self._connection, self._head)
        self._connection.on_request(self.receiving)

    def on_body(self, piece: bytes) -> None:
        assert self.receiving is not None  # noqa: S101 - a body follows a head
        self.receiving.feed(piece)

    def on_message_complete(self) -> None:
        if self.receiving is not None:
            self.receiving.complete()
            self.receiving = None
            self._received, self._tail = 0, b""

    def _read(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Read until the connection wants a pause or other connections are due; return the offset reached."""
        view = memoryview(data)
        effort = 0
        while start < end and not self.discarding:
            body = self.receiving
            if body is not None and body.declared_bytes is not None:
                stop = min(end, start + body.declared_bytes - body.size)
                self._parse(view[start:stop])
            elif effort >= _PIECE_BYTES_MAX or (effort and self._connection.should_pause()):
                break
            elif not self._received and body is None and (stop := self._read_cached(data, view, start, end)):
                effort += stop - start + _PIECE_COST
            else:
                stop = _end_of_piece(data, start, end, self._tail)
                is_whole_head = not self._received and body is None
                self._read_piece(view[start:stop])
                if is_whole_head and self._head is not None:
                    self._head_cache.add(bytes(view[start:stop]), self._head)
                self._head = None
                if self._received:
                    self._tail = _tail_of(self._tail, data, start, stop)
                effort += stop - start + _PIECE_COST
            start = stop
        return start

    def _read_cached(self, data: bytes | bytearray, view: memoryview, start: int, end: int) -> int:
        """Read a complete request with a cached head without parsing it; return where it ends, or 0.

        This is safe: the same bytes at the start of a request always mean the same head.
        """
        head_end = data.find(_END, start, min(end, start + CACHED_HEAD_BYTES_MAX)) + len(_END)
        head = self._head_cache.get(bytes(view[start:head_end]))
        if head is None or (stop := head_end + cast("int", head.declared_bytes)) > end:
            return 0
        request = IncomingRequest(self._connection, head)
        request.buffered_body = bytes(view[head_end:stop])
        request.is_complete = True
        self._connection.on_request(request)
        return stop

    def _read_piece(self, piece: memoryview) -> None:
        """Parse a piece of a head or of a chunked body, and bound the bytes that are not content."""
        self._received += len(piece)
        if self.receiving is None and self._received > head_rules.HEAD_BYTES_MAX:
            self._refuse(head_rules.TOO_LARGE)
            return
        self._parse(piece)
        if self._received > head_rules.HEAD_BYTES_MAX and not self.discarding:
            size = 0 if self.receiving is None else self.receiving.size
            if self._received > head_rules.HEAD_BYTES_MAX + _CHUNKED_BYTES_MAX * size:
                self._refuse(head_rules.TOO_LARGE)

    def _parse(self, piece: memoryview) -> None:
        offers_upgrade = False
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade:
            offers_upgrade = True  # Handled below: an error raised here would carry this one as its context.
        except HttpParserError as error:
            if not isinstance(error, HttpParserCallbackError):
                self._refuse(head_rules.NO_HTTP)
            elif isinstance(error.__context__, _BadHeadError):
                self._refuse(error.__context__.flaw)
            else:
                raise
        if offers_upgrade:
            self._parse_without_upgrade()

    def _parse_without_upgrade(self) -> None:
        """Parse the head again without its Upgrade header: we decline, and the body follows in HTTP/1.1."""
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            self._refuse(head_rules.NO_HTTP)
            return
        headers = {name: values for name, values in self._headers.items() if name != b"upgrade"}
        lines = [b"%b %b HTTP/%b" % (method, self._url, version.encode())]
        lines += [b"%b: %b" % (name, value) for name, values in headers.items() for value in values]
        self._parser = HttpRequestParser(self)
        self._parse(memoryview(b"\r\n".join([*lines, b"", b""])))

    def _refuse(self, flaw: head_rules.Flaw) -> None:
        self.stop()
        self._connection.on_bad_request(flaw)


class _BadHeadError(Exception):
    """The parser accepts this head, but we do not."""

    def __init__(self, flaw: head_rules.Flaw) -> None:
        super().__init__(flaw.text)
        self.flaw = flaw


def _end_of_piece(data: bytes | bytearray, start: int, end: int, tail: bytes) -> int:
    """Return where the piece that begins at `start` ends; `tail` is from the piece before it."""
    if tail:
        overlap = (tail + data[start : min(start + _TAIL_BYTES, end)]).find(_END)
        if overlap >= 0:
            return start + overlap + len(_END) - len(tail)
    end = min(end, start + _PIECE_BYTES_MAX)
    found = data.find(_END, start, end)
    return end if found < 0 else found + len(_END)


def _tail_of(tail: bytes, data: bytes | bytearray, start: int, stop: int) -> bytes:
    """Return the last bytes of a piece, where an end mark that is cut in two may begin."""
    return (tail + data[max(start, stop - _TAIL_BYTES) : stop])[-_TAIL_BYTES:]
