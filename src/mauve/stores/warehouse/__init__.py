"""The warehouse: every behavioral event, and sketches of the active users.

A row is identified by `seq`: stream, record number and index in the record, in one integer. This distinguishes a row
loaded twice from another event with the same content.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from mauve.stores.log import RECORD_NUMBER_MAX

ITEMS_PER_RECORD_MAX: Final = 1024
_ITEM_BITS: Final = 10
_NUMBER_BITS: Final = 46
STREAM_SHIFT: Final = _NUMBER_BITS + _ITEM_BITS
"""The stream of a row is its `seq`, shifted right by this number of bits."""


class WarehouseUnavailableError(Exception):
    """The engine does not answer; loading the same rows may succeed later."""


class RowsRefusedError(Exception):
    """The engine works but refuses these rows."""


def first_seq(stream: int, number: int) -> int:
    return (stream << STREAM_SHIFT) | ((number & RECORD_NUMBER_MAX) << _ITEM_BITS)


def last_numbers(seqs: Iterable[int]) -> dict[int, int]:
    """Return the number of the last record among these rows, by stream."""
    last: dict[int, int] = {}
    for seq in seqs:
        stream, number = seq >> STREAM_SHIFT, (seq >> _ITEM_BITS) & RECORD_NUMBER_MAX
        last[stream] = max(number, last.get(stream, 0))
    return dict(sorted(last.items()))


class Texts:
    """A column of strings, joined batch by batch.

    A range holds a million small strings: keeping and traversing them individually would dominate the cost of a load.
    """

    __slots__ = ("lengths", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []  # UTF-8, concatenated
        self.lengths = array("i")  # in bytes, one per string

    def extend(self, texts: Sequence[str]) -> None:
        joined = "".join(texts)
        if joined.isascii():
            self.pieces.append(joined.encode())
            self._extend_lengths(texts)
        else:
            self.extend_encoded([text.encode() for text in texts])

    def extend_empty(self, count: int) -> None:
        self.lengths.extend(array("i", (0,)) * count)

    def extend_encoded(self, texts: Sequence[bytes | msgspec.Raw]) -> None:
        self.pieces.append(b"".join(texts))
        self._extend_lengths(texts)

    def _extend_lengths(self, texts: Sequence[Sized]) -> None:
        # An array converts numbers one at a time; numpy is several times faster. It is slow to import, and processes
        # that only receive events import this module but never call this.
        import numpy as np  # noqa: PLC0415

        self.lengths.frombytes(np.fromiter(map(len, texts), np.int32, len(texts)).tobytes())


def _moments() -> "array[int]":
    return array("q")


def _seqs() -> "array[int]":
    return array("Q")


@dataclass(slots=True)
class EventRows:
    """Events as columns of equal length, in order of arrival."""

    project: list[str] = field(default_factory=list)
    name: Texts = field(default_factory=Texts)
    received_at: "array[int]" = field(default_factory=_moments)  # epoch ms
    occurred_at: "array[int]" = field(default_factory=_moments)  # epoch ms, clamped
    claimed_at: Texts = field(default_factory=Texts)  # the raw `at`, empty if none was sent
    user: Texts = field(default_factory=Texts)  # empty if absent
    id: Texts = field(default_factory=Texts)  # empty if absent
    props: Texts = field(default_factory=Texts)  # the JSON object as sent, empty if absent
    seq: "array[int]" = field(default_factory=_seqs)

    def __len__(self) -> int:
        return len(self.seq)


class SameId(NamedTuple):
    """The staged rows of one project and id, by index, and earlier times at which the id was counted in the window."""

    places: list[int]
    counted_at: list[int]  # received_at of each


class StoredEvent(NamedTuple):
    """An event in the list of latest arrivals."""

    name: str
    received_at: int  # epoch ms
    occurred_at: int
    user: str  # empty if absent
    id: str
    props: str  # the JSON object as sent, empty if absent; truncated if long
    counted: int  # 1, or 0: a repeat


# Errors caused by the rows; any other indicates a problem with the engine or its disk.
BAD_ROW_CODES: Final = frozenset(
    {
        6,  # cannot parse text
        27,  # cannot parse input
        33,  # cannot read all data
        41,  # cannot parse date and time
        53,  # type mismatch
        69,  # argument out of bound
        70,  # cannot convert type
        72,  # cannot parse number
        117,  # incorrect data
        131,  # too large string size
        321,  # value is out of range of data type
        349,  # cannot insert NULL in ordinary column
    }
)
_lines: Final = msgspec.json.Decoder()


class Connection:
    """A session on an engine, used by one thread at a time. Its temporary tables are not visible to other sessions.

    Parameters are bound to `{name:Type}`, never inserted into the SQL.
    """

    def run(self, sql: str, parameters: Mapping[str, str | int] | None = None) -> None:
        self._query(sql, None, parameters)

    def rows(self, sql: str) -> list[tuple[int, ...]]:
        """Return rows of integers."""
        return [tuple(map(int, line.split("\t"))) for line in self._query(sql, "TSV").decode().splitlines()]

    def binary(self, sql: str) -> bytes:
        """Return rows in the engine's binary format, concatenated."""
        return self._query(sql, "RowBinary")

    def read(self, sql: str, parameters: Mapping[str, str | int]) -> list[list[Any]]:
        """Return rows of texts and integers."""
        return _lines.decode_lines(self._query(sql, "JSONCompactEachRow", parameters))

    def arrow(self, sql: str, parameters: Mapping[str, str | int]) -> bytes:
        """Return rows as an Arrow stream."""
        return self._query(sql, "ArrowStream", parameters)

    def insert_arrow(self, table: str, stream: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _query(self, sql: str, format_: str | None, parameters: Mapping[str, str | int] | None = None) -> bytes:
        """Run a statement and return its rows in a format; None: it has none."""
        raise NotImplementedError
