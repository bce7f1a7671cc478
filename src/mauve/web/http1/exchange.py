"""One request and its reply."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from mauve.core.problems import Busy
from mauve.web.body import DRAIN_BYTES_MAX, BodyTooLargeError, IncompleteBodyError, Pace, never
from mauve.web.http1.head import UNASKED_BYTES_MAX, Head

_PIECES_MAX: Final = 256  # A piece of a body may be a single byte: so many are joined before they add up.


class Sender(Protocol):
    """Who has the rest of a body."""

    def send_on(self, exchange: "Exchange") -> None:
        """Let the rest of the body come."""
        ...


class Exchange:
    """A request whose head has arrived. Its body comes when it is asked for, or came along with the head."""

    # What most requests never change stands here, and not in each of them.
    arrived: bytes | None = None
    is_asked_for = False
    is_complete = False
    is_cut_off = False
    pace: Pace | None = None  # once the body is asked for
    _bytes_max = DRAIN_BYTES_MAX  # Until the body is asked for, no more of it comes than is held back.
    _arrival: asyncio.Future[None] | None = None

    def __init__(self, sender: Sender, head: Head) -> None:
        self._sender = sender
        self.head = head
        self.header = head.header
        self.method = head.method
        self.path = head.path
        self.declared_bytes = head.declared_bytes
        self.size = 0
        self._pieces: list[bytes] = []
        self._is_in_the_way = never

    def header_values(self, name: str) -> list[str]:
        return self.head.header_values(name)

    @property
    def expects_continue(self) -> bool:
        """Tell whether the client sends the body only when it is told to go on."""
        return self.head.expects_continue and not self.size

    @property
    def is_held_back(self) -> bool:
        """Tell whether enough of the body is here as long as nobody asks for it."""
        return not self.is_complete and not self.is_asked_for and self.size > UNASKED_BYTES_MAX

    async def body(self, bytes_max: int, is_in_the_way: Callable[[], bool] = never) -> bytes:
        self._bytes_max = bytes_max
        self._is_in_the_way = is_in_the_way
        if self.arrived is not None:
            if len(self.arrived) > bytes_max:
                raise BodyTooLargeError
            return self.arrived
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
        if not self.is_asked_for and self.size <= UNASKED_BYTES_MAX:
            self.arrived = b"".join(self._pieces)
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
