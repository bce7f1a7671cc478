"""The warehouse: every behavioural event, and the sketches of who was there.

A row is known by `seq`: stream, record number and place in the record, in one number. A row that is loaded
again under its `seq` can therefore be told from another event with the same content.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.stores.closed_days import DayUsers
from mauve.stores.log import RECORD_NUMBER_MAX

ITEMS_PER_RECORD_MAX: Final = 1024
_ITEM_BITS: Final = 10
_NUMBER_BITS: Final = 46


class WarehouseUnavailableError(Exception):
    """The engine does not answer; the same rows may be loaded later."""


class RowsRefusedError(Exception):
    """The engine is well and refuses these rows."""


def first_seq(stream: int, number: int) -> int:
    """Return the seq of a record's first item."""
    return (stream << (_NUMBER_BITS + _ITEM_BITS)) | ((number & RECORD_NUMBER_MAX) << _ITEM_BITS)


def last_numbers(seqs: Iterable[int]) -> dict[int, int]:
    """Return the number of the last record among these rows, by stream."""
    last: dict[int, int] = {}
    for seq in seqs:
        stream, number = seq >> (_NUMBER_BITS + _ITEM_BITS), (seq >> _ITEM_BITS) & RECORD_NUMBER_MAX
        last[stream] = max(number, last.get(stream, 0))
    return dict(sorted(last.items()))


class Texts:
    """A column of texts, joined batch by batch.

    A range holds a million small objects. Keeping them all and walking through them again would cost more than
    everything else that is done with them.
    """

    __slots__ = ("lengths", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []  # UTF-8, one behind the other
        self.lengths = array("i")  # in bytes, one for each text

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
        # An array takes numbers one by one, and parses each; numpy is several times as quick. It is large, and those
        # who only receive events import this module as well, and never come here.
        import numpy as np  # noqa: PLC0415

        self.lengths.frombytes(np.fromiter(map(len, texts), np.int32, len(texts)).tobytes())


def _moments() -> "array[int]":
    return array("q")


def _seqs() -> "array[int]":
    return array("Q")


@dataclass(slots=True)
class EventRows:
    """Events as columns, all of one length, in the order in which they arrived."""

    project: list[str] = field(default_factory=list)
    name: Texts = field(default_factory=Texts)
    received_at: "array[int]" = field(default_factory=_moments)  # epoch ms
    occurred_at: "array[int]" = field(default_factory=_moments)  # epoch ms, clamped
    claimed_at: Texts = field(default_factory=Texts)  # the raw `at`, empty if none was sent
    user: Texts = field(default_factory=Texts)  # empty if absent
    id: Texts = field(default_factory=Texts)  # empty if absent
    props: Texts = field(default_factory=Texts)  # the JSON object as it came, empty if absent
    seq: "array[int]" = field(default_factory=_seqs)

    def __len__(self) -> int:
        return len(self.seq)


class SameId(NamedTuple):
    """The staged rows of one project and id, by their places, and when it was counted before, within the window."""

    places: list[int]
    counted_at: list[int]  # received_at of each


class WarehouseWriter(Protocol):
    """Where the loader writes: stage, decide what counts, commit.

    - When `commit` returns, the staged rows are durable: they outlive a power cut.
    - A `commit` that fails may have stored some of the rows: ask `stored_after` before loading them again.
    - Rows that do not count are stored; they are in no count and in no sketch.
    - If what was staged is not there any more, `commit` fails and nothing of it counts as stored.
    """

    def stage(self, rows: EventRows) -> list[SameId]:
        """Take the rows in, in place of any staged before.

        Return the ids that were counted before, and those that several of the rows share.
        """
        ...

    def commit(self, repeats: Collection[int], stored: Collection[int]) -> None:
        """Store what is staged. `repeats` do not count; `stored` are there already and only feed the sketches."""
        ...

    def stored_after(self, positions: Mapping[int, int]) -> dict[int, bool]:
        """Return, by seq, whether it counts: every row of a record behind the given ones, by stream."""
        ...

    def recover_ids(self, positions: Mapping[int, int]) -> None:
        """Make sure that the ids of the same rows, where they count, are found by `stage`: a commit may have failed."""
        ...

    def ping(self) -> None: ...


class WarehouseSummary(Protocol):
    """Where days are summed up when they close."""

    def first_day(self) -> date | None:
        """Return the earliest day on which anybody was seen."""
        ...

    def users_of_days(self, window: Window) -> list[DayUsers]:
        """Return the users of every project on every day of the window that had any."""
        ...

    def merge_week(self, week: Window) -> None:
        """Merge the sketches of a week into one, beside them; durable when it returns, and harmless again."""
        ...


class StoredEvent(NamedTuple):
    """An event as the owner is shown it."""

    name: str
    received_at: int  # epoch ms
    occurred_at: int
    user: str  # empty if absent
    id: str
    props: str  # the JSON object as it came, empty if absent; cut off where it is long
    counted: int  # 1, or 0: a repeat


class WarehouseReader(Protocol):
    """What the query plane reads. Only what counts is in any figure; windows are inclusive.

    - Days on which there is nothing to count are left out; the others come in order, as YYYY-MM-DD.
    - A read that takes too long or too much memory fails with `WarehouseUnavailableError`, as one of an engine that is
      down does. The next may succeed.
    - Several threads may read at once, beside the loader.
    """

    def users(
        self, projects: Collection[str], seen: Collection[Activity], window: Window, weeks: Window | None
    ) -> dict[str, int]:
        """Return how many different users each project had: exact while few, then about 0.5 % off; 0 is left out.

        `weeks` are those of the window that were summed up.
        """
        ...

    def users_by_day(self, projects: Collection[str], seen: Activity, window: Window) -> list[tuple[str, str, int]]:
        """Return (project, day, users), by project, then day."""
        ...

    def event_names(self, project: str, window: Window, names_max: int) -> list[tuple[str, int]]:
        """Return names with their counts, the most frequent first, equal ones by name (as UTF-8)."""
        ...

    def event_count(self, project: str, name: str, window: Window) -> int: ...

    def event_days(self, project: str, name: str, window: Window) -> list[tuple[str, int]]: ...

    def latest_events(self, project: str, window: Window, events_max: int) -> list[StoredEvent]:
        """Return the events that arrived last, the latest first, of those that occurred in the window."""
        ...

    def close(self) -> None: ...
