"""The warehouse: every behavioral event, and sketches of the active users.

A row is identified by `seq`: stream, record number and index in the record, in one integer. This distinguishes a row
loaded twice from another event with the same content.
"""

from array import array
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
