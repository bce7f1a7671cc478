"""One request and its reply."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import unquote

from httptools import HttpParserInvalidURLError, parse_url

from mauve.core.problems import Busy
from mauve.web.body import DRAIN_BYTES_MAX, BodyTooLargeError, IncompleteBodyError, declared_size, never
from mauve.web.pace import Pace

_UNASKED_BYTES_MAX: Final = 64 * 1024
_PIECES_MAX: Final = 256  # A piece of a body may be a single byte: so many are joined before they add up.


Headers = dict[bytes, list[bytes]]  # by names in lower case


class Sender(Protocol):
    """Who has the rest of a body."""

    def send_on(self, exchange: "Exchange") -> None:
        """Let the rest of the body come."""
        ...


class Exchange:
    """A request whose head has arrived. Its body comes when it is asked for, or came along with the head."""

    __slots__ = (
        "_arrival",
        "_bytes_max",
        "_headers",
        "_is_in_the_way",
        "_pieces",
        "_sender",
        "declared_bytes",
        "is_asked_for",
        "is_complete",
        "is_cut_off",
        "keeps_alive",
        "method",
        "pace",
        "path",
        "size",
        "task",
    )

    def __init__(self, sender: Sender, method: bytes, url: bytes, headers: Headers, *, keeps_alive: bool) -> None:
        self._sender = sender
        self.method = method.decode()
        self.path = path_of(url)
        self._headers = headers
        self.keeps_alive = keeps_alive
        self.declared_bytes = declared_size(self.header("content-length"))
        self.size = 0
        self._bytes_max = DRAIN_BYTES_MAX  # Until the body is asked for, no more of it comes than is held back.
        self._pieces: list[bytes] = []
        self.is_asked_for = False
        self.is_complete = False
        self.is_cut_off = False
        self._is_in_the_way = never
        self.pace: Pace | None = None  # once the body is asked for
        self._arrival: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None  # Somebody must hold it while it is under way.

    def header(self, name: str) -> str | None:
        values = self._headers.get(name.encode())
        return None if values is None else b", ".join(values).decode("latin-1")

    def header_values(self, name: str) -> list[str]:
        return [value.decode("latin-1") for value in self._headers.get(name.encode(), ())]

    @property
    def expects_continue(self) -> bool:
        """Tell whether the client sends the body only when it is told to go on."""
        return not self.size and (self.header("expect") or "").lower() == "100-continue"

    @property
    def is_held_back(self) -> bool:
        """Tell whether enough of the body is here as long as nobody asks for it."""
        return not self.is_complete and not self.is_asked_for and self.size > _UNASKED_BYTES_MAX

    async def body(self, bytes_max: int, is_in_the_way: Callable[[], bool] = never) -> bytes:
        self._bytes_max = bytes_max
        self._is_in_the_way = is_in_the_way
        if not self.is_complete:
            if self.expects_continue and (self.declared_bytes or 0) > bytes_max:
                raise BodyTooLargeError
            await self._rest()
        if self.size > bytes_max:
            raise BodyTooLargeError
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body. One that is too large is still read, within bounds, and not kept.

        A client that is writing would otherwise see its connection reset instead of our answer.
        """
        self.size += len(piece)
        if self.size <= self._bytes_max:
            self._pieces.append(piece)
            if len(self._pieces) == _PIECES_MAX:
                self._pieces = [b"".join(self._pieces)]
            return
        self._pieces.clear()
        if self.size > DRAIN_BYTES_MAX:
            self._arrived()

    def complete(self) -> None:
        self.is_complete = True
        self._arrived()

    def cut_off(self, reason: Exception | None = None) -> None:
        """Note that no more of the body will come, or not in time."""
        self.is_cut_off = True
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_exception(reason or IncompleteBodyError())

    def look(self, now_s: float) -> None:
        """Wait no longer for a body that comes too slowly."""
        if self.pace is None:
            return
        if self.pace.is_late(now_s, self.size):
            self.cut_off()
        elif self.pace.is_slow(now_s) and self._is_in_the_way():
            self.cut_off(Busy())

    async def _rest(self) -> None:
        if self.is_cut_off:
            raise IncompleteBodyError
        self.is_asked_for = True
        self._arrival = asyncio.get_running_loop().create_future()
        self._sender.send_on(self)
        await self._arrival

    def _arrived(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def path_of(url: bytes) -> str:
    """Return the decoded path; one with an escaped slash stays as it came and so matches no route."""
    if not url.startswith(b"/"):
        try:
            url = parse_url(url).path or b"/"
        except HttpParserInvalidURLError:  # `*`, or an address without a scheme
            return url.decode("latin-1")
    path = url.partition(b"?")[0].partition(b"#")[0].decode("latin-1")
    return unquote(path, errors="replace") if "%" in path and "%2f" not in path.lower() else path
