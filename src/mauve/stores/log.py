"""The log: where accepted behavioural events are durable before anybody is told so.

Each writer process appends to a stream of its own, so writers never wait for one another. A record is known by
its stream and its number; numbers of a stream only grow and may have gaps.
"""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

STREAM_MAX: Final = 255
MIXED_STREAM: Final = STREAM_MAX  # the events that came in one batch with payments, kept by the ledger
RECORD_NUMBER_MAX: Final = 2**46 - 1


class LogFailedError(Exception):
    """The record is not durable, and the writer will accept no more: only a restart recovers it."""


class LogFullError(Exception):
    """The record was not written: the backlog has reached its disk budget. Later appends may succeed."""


class LogRecord(NamedTuple):
    number: int
    payload: bytes


class LogWriter(Protocol):
    """Where a process appends.

    - When what `append` returns was awaited, the record is durable: it outlives a power cut.
    - After a failed write or sync every `append` ends in `LogFailedError`; a sync is never tried twice.
    - Records of one writer keep the order in which `append` was called.
    """

    def append(self, parts: Sequence[bytes]) -> Awaitable[int]:
        """Append one record, given in pieces that are written one behind the other; return its number."""
        ...

    @property
    def last_number(self) -> int:
        """Return a number that every durable record has reached at most, and no later record will."""
        ...

    @property
    def flush_s(self) -> float:
        """Return how long making a group durable has taken lately."""
        ...

    @property
    def has_failed(self) -> bool:
        """Tell whether only a restart can recover this writer."""
        ...

    async def close(self) -> None: ...


class StreamReader(Protocol):
    """Looks at what one stream holds, and changes nothing: its writer and the loader go on meanwhile.

    - `records` returns whole records above `after`, up to and including `through`, in order.
    - Those that the loader lets go of meanwhile may be missing.
    """

    def records(self, after: int, through: int) -> Iterator[LogRecord]: ...


class LogReader(Protocol):
    """Where the loader reads, from every stream.

    - `read` returns whole, undamaged records with a number above `after`, in order; it never waits.
    - A damaged record is set aside and reported, and those behind it are still returned.
    - `trim` lets go of records up to and including `through`; they may be returned no more.
    """

    def streams(self) -> list[int]: ...

    def read(self, stream: int, after: int, bytes_max: int) -> list[LogRecord]:
        """Return at least one record if there is one, else stop before `bytes_max`."""
        ...

    def trim(self, stream: int, through: int) -> None: ...

    def backlog_bytes(self) -> int:
        """Return how much is stored and not yet trimmed."""
        ...

    def quarantined(self) -> int:
        """Return how many damaged records were set aside since this reader was opened."""
        ...
