"""The log: where accepted behavioral events are made durable before they are acknowledged.

Each writer process appends to its own stream, so writers never wait for one another. A record is identified by its
stream and number; numbers increase within a stream and may have gaps.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

STREAM_MAX: Final = 255
MIXED_STREAM: Final = STREAM_MAX  # events sent in one batch with payments, stored in the ledger
RECORD_NUMBER_MAX: Final = 2**46 - 1
_NUMBER_BITS: Final = 46


def place_of(stream: int, number: int) -> int:
    """Return a record's stream and number as one integer: its place in the log."""
    return stream << _NUMBER_BITS | number


def stream_of(place: int) -> int:
    return place >> _NUMBER_BITS


def number_of(place: int) -> int:
    return place & RECORD_NUMBER_MAX


class LogFailedError(Exception):
    """The record is not durable, and the writer accepts no more until it is restarted."""


class LogUnavailableError(Exception):
    """The record may not be durable, and may be sent again. The writer recovers automatically."""


class LogFullError(Exception):
    """The record was not written because the backlog has reached its disk budget. Later appends may succeed."""


class LogRecord(NamedTuple):
    number: int
    payload: bytes


class Lost(NamedTuple):
    """Records of a stream that were deleted before they were loaded."""

    messages: int  # each holds at least one record
    through: int  # the number up to which nothing is left


class Reach(NamedTuple):
    """How far back a log reaches."""

    seconds: float | None = None  # None: it still holds everything, or nothing
    is_short: bool = False  # loaded records were deleted early for lack of space


class LogWriter(Protocol):
    """A process's writer to the log.

    - Once the result of `append` has been awaited, the record is durable: it survives a power cut.
    - After a failed write or sync, every `append` raises `LogFailedError`; a sync is never retried.
    - While a server is unreachable, `append` raises `LogUnavailableError` in bounded time; the record may still be
      stored.
    - Records of one writer keep the order in which `append` was called.
    """

    flush_s: float  # the recent time to make a group durable
    has_failed: bool  # This writer needs a restart.

    def append(self, parts: Sequence[bytes]) -> asyncio.Future[int]:
        """Append one record, given as consecutive parts; return its place (see `place_of`)."""
        ...

    @property
    def is_available(self) -> bool:
        """Return whether an append is expected to succeed now."""
        ...

    async def close(self) -> None: ...


class LogReader(Protocol):
    """The loader's reader of every stream.

    - `read` returns whole, undamaged records with a number above `after`, in order; it never waits.
    - A damaged record is quarantined and reported, and the ones after it are still returned.
    - Without its server it raises `StoreUnavailableError`; a later call may succeed.
    - `trim` releases records up to and including `through`; they may no longer be returned.
    """

    def streams(self) -> list[int]: ...

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        """Return records up to `bytes_max`, but at least one if there is any."""
        ...

    def records(self, stream: int, after: int, through: int) -> Iterator[LogRecord]:
        """Yield whole records above `after`, up to and including `through`, in order, without changing anything.

        The stream's writer and the loader may continue; records trimmed during the read may be missing.
        """
        ...

    def last_number(self, stream: int) -> int:
        """Return a number that no already durable record of a stream exceeds. Cheap."""
        ...

    def trim(self, stream: int, through: int) -> None: ...

    def backlog_bytes(self, positions: Mapping[int, int]) -> int:
        """Return the approximate size of the records after these positions; 0 if there are none. Cheap."""
        ...

    def stored_bytes(self) -> int: ...

    def largest_stream_bytes(self) -> int:
        """Return the stored bytes of the largest stream: each stream has its own budget."""
        ...

    def quarantined(self) -> int: ...

    def lost_after(self, positions: Mapping[int, int]) -> dict[int, Lost]:
        """Return the records deleted after these positions, by stream, as of each stream's last known state.

        Positions read after that state was known, or belonging to the only loader, cause no false alarm.
        """
        ...

    def lost_streams(self) -> frozenset[int]:
        """Return the streams that are lost entirely, as of their last known state. They read as empty."""
        ...

    def reach(self) -> Reach: ...

    def close(self) -> None: ...
