"""The warehouse: every behavioral event, and sketches of the active users.

A row is identified by `seq`: stream, record number and index in the record, in one integer. This distinguishes a row
loaded twice from another event with the same content.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple, Protocol

import msgspec

from mauve.core.events import Activity
from mauve.core.window import Window
from mauve.stores.ledger.closed_days import DayUsers
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


class WarehouseWriter(Protocol):
    """The loader's writer: stage, decide what counts, commit.

    - When `commit` returns, the staged rows are durable: they survive a power cut.
    - A failed `commit` may have stored some of the rows: call `stored_after` before loading them again.
    - Rows that do not count are stored, but not included in any count or sketch.
    - If the staged rows are lost, `commit` fails and stores nothing.
    """

    def stage(self, rows: EventRows) -> list[SameId]:
        """Stage the rows, replacing any staged earlier.

        Return the ids that were already counted, and those shared by several rows.
        """
        ...

    def commit(self, repeats: Collection[int], stored: Collection[int], range_name: str = "") -> None:
        """Store the staged rows. `repeats` do not count; `stored` are already stored and only update the sketches.

        A server stores the rows of one range name only once, even if two loaders commit it concurrently.
        """
        ...

    def stored_after(self, positions: Mapping[int, int], received_from_ms: int = 0) -> dict[int, bool]:
        """Return the rows of all records after the given ones, by stream: seq → whether the row counts.

        Omit those received before a given time; without one, the whole table is scanned.
        """
        ...

    def recover_ids(self, positions: Mapping[int, int], received_from_ms: int = 0) -> None:
        """Make `stage` find the ids of rows that count: the commit that stored them may have failed."""
        ...

    def forget_ids(self) -> None:
        """Make `stage` find the ids that another loader has counted: cached ids may be outdated."""
        ...

    def expire_ids(self, loaded_through_ms: int) -> None:
        """Expire ids that no event received after this time can repeat within the window.

        Every event received earlier must be loaded, because a waiting event may repeat an id from days ago.
        """
        ...

    def ping(self) -> None: ...


class WarehouseSummary(Protocol):
    """Summarizes days when they close."""

    def first_day(self) -> date | None:
        """Return the earliest day with any activity."""
        ...

    def users_of_days(self, window: Window) -> list[DayUsers]:
        """Return the users of every project on every day of the window that has any."""
        ...

    def merge_week(self, week: Window) -> None:
        """Merge the sketches of a week into an additional one, durably. Safe to repeat."""
        ...


class StoredEvent(NamedTuple):
    """An event in the list of latest arrivals."""

    name: str
    received_at: int  # epoch ms
    occurred_at: int
    user: str  # empty if absent
    id: str
    props: str  # the JSON object as sent, empty if absent; truncated if long
    counted: int  # 1, or 0: a repeat


class WarehouseReader(Protocol):
    """The query plane's reader. Only rows that count are included; windows include both ends.

    - Days with a count of zero are omitted; the others are in order, as YYYY-MM-DD.
    - A read that takes too long or too much memory raises `WarehouseUnavailableError`, as does an engine that is down.
      The next may succeed.
    - Several threads may read concurrently, while the loader writes.
    """

    def users(
        self, projects: Collection[str], seen: Collection[Activity], window: Window, weeks: Window | None
    ) -> dict[str, int]:
        """Return each project's distinct users: exact if few, else within about 0.5 %; projects with 0 are omitted.

        `weeks` are the weeks of the window whose sketches were merged.
        """
        ...

    def users_by_day(self, projects: Collection[str], seen: Activity, window: Window) -> list[tuple[str, str, int]]:
        """Return (project, day, users), by project, then day."""
        ...

    def event_names(self, project: str, window: Window, names_max: int) -> list[tuple[str, int]]:
        """Return names with their counts, most frequent first, then by name (as UTF-8)."""
        ...

    def event_count(self, project: str, name: str, window: Window) -> int: ...

    def event_days(self, project: str, name: str, window: Window) -> list[tuple[str, int]]: ...

    def latest_events(self, project: str, window: Window, events_max: int) -> list[StoredEvent]:
        """Return the latest events received in the window, whenever they occurred, latest first."""
        ...

    def close(self) -> None: ...
