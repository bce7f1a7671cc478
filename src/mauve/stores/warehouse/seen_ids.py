"""Which ids were counted: a table, with an in-memory filter for each of its days.

Ids are random, so looking up thousands of them touches nearly the whole table. The filters recognize most ids as new;
only the others are looked up, and only in the days that may hold them.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import structlog

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import Connection, EventRows, SameId, WarehouseUnavailableError
from mauve.stores.warehouse.columns import id_candidates_as_arrow
from mauve.stores.warehouse.id_filter import Hashes, IdFilter, capacity_of, masks_of
from mauve.stores.warehouse.schema import STAGED_CANDIDATES, day_from, day_number

FILTER_BYTES_MAX: Final = 512 * 1024 * 1024
"""The limit for all filters. Beyond it, they are overfilled and recognize fewer new ids: slower, but never wrong."""

CAPACITY_MIN: Final = 65_536
_SLACK_MAX: Final = 1.25  # the allowed oversize of a past day's filter
_IDS_AT_ONCE: Final = 1_000_000
_FIRST_BYTES: Final = 256  # a day is read in pieces, by the first byte
_WINDOW_DAYS: Final = 7  # how many days back repeats are looked up
_KEPT_DAYS: Final = 9  # Two more, because events load after they are received and clocks differ.

_DAYS: Final = """
SELECT partition, sum(rows) FROM system.parts
WHERE database = currentDatabase() AND table = 'seen' AND active GROUP BY partition ORDER BY partition
SETTINGS output_format_json_quote_64bit_integers = 0
"""
_COUNTED_ON: Final = """
SELECT id_hash, received_at FROM seen WHERE received_day = toDate(toUInt16({day})) AND id_hash IN ({ids})
"""
_DROP_DAY: Final = "ALTER TABLE seen DROP PARTITION '{day}' SETTINGS max_partition_size_to_drop = 0"
_STAGED_CANDIDATES: Final = "SELECT id_hash FROM staged_candidates WHERE day = {day}"
_INLINE_IDS_MAX: Final = 1_000
"""The maximum number of ids embedded in the query, which is several times faster; more would make it too long."""

_COUNTED: Final = np.dtype([("hash", "V16"), ("received_at", "<i8")])  # as the engine writes them

log = structlog.get_logger()


class SeenIds:
    """Used by the loader's thread only.

    A missing filter does not mean that a day has no ids; it is built when first needed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._days = set(self._stored_days())  # on which the table may hold ids
        self._filters: dict[int, IdFilter] = {}

    def build(self) -> None:
        """Build the filters of recent days ahead of time."""
        stored = self._stored_days()
        newest = max(stored, default=0)
        for day in sorted(stored, reverse=True):  # If space is short, the oldest days get less.
            if day >= newest - _WINDOW_DAYS:
                self._make_filter(day, stored[day] * 2 if day == newest else stored[day])
        if self._filters:
            log.info("ids_known", ids=sum(each.count for each in self._filters.values()), bytes=self.filter_bytes)

    def expire(self, loaded_through_ms: int) -> None:
        """Drop days that are too old for new events, given that all earlier events are loaded.

        Always keep the newest days: a clock that jumps ahead must not expire all of them.
        """
        oldest = loaded_through_ms // DAY_MS - _KEPT_DAYS
        for day in sorted(self._days)[:-_KEPT_DAYS]:
            if day <= oldest:
                self._connection.run(_DROP_DAY.format(day=day_from(day)))
                self._days.remove(day)
                self._filters.pop(day, None)

    def forget(self) -> None:
        """Rebuild every filter when it is next needed: another loader may have stored ids."""
        self._days |= set(self._stored_days())
        self._filters = {}

    @property
    def filter_bytes(self) -> int:
        return sum(each.size_bytes for each in self._filters.values())

    def counted_at(self, hashes: Hashes, first_day: int) -> dict[int, list[int]]:
        """Return when each hash was counted, by index; those never counted are omitted.

        `first_day` is the earliest day of receipt among them; nothing older than the window is looked up.
        """
        oldest = first_day - _WINDOW_DAYS
        self._filters = {day: each for day, each in self._filters.items() if day >= oldest}
        first = masks_of(hashes[:, 0])
        found = {}
        for day in sorted(day for day in self._days if day >= oldest):
            places = self._filter_of(day).may_hold(hashes, first)
            if len(places):
                found[day] = places
        return self._looked_up(found, hashes) if found else {}

    def add(self, hashes: Hashes, days: npt.NDArray[np.int64]) -> None:
        """Add ids that are about to be counted. This is harmless if storing them fails."""
        for day in np.unique(days).tolist():
            added = hashes[days == day]
            if day not in self._days:
                self._begin_day(day, len(added))
            id_filter = self._filter_of(day)
            if id_filter.count + len(added) > id_filter.capacity:
                id_filter = self._grown(day, len(added))
            id_filter.add(added)

    def _begin_day(self, day: int, count: int) -> None:
        """Build a filter of the size that other days needed."""
        expected = max((each.count for each in self._filters.values()), default=0)
        self._days.add(day)
        # Past days no longer grow: drop their oversized filters, to be rebuilt at the right size.
        self._filters = {each: made for each, made in self._filters.items() if made.capacity <= made.count * _SLACK_MAX}
        self._make_filter(day, max(expected, count))

    def _filter_of(self, day: int) -> IdFilter:
        return self._filters.get(day) or self._make_filter(day, 0)

    def _grown(self, day: int, more: int) -> IdFilter:
        """Return a larger filter of the same day, filled from the table, because a filter cannot be resized."""
        full = self._filters[day]
        room = capacity_of(FILTER_BYTES_MAX - self.filter_bytes + full.size_bytes)
        return full if room <= full.capacity else self._make_filter(day, (full.count + more) * 2)

    def _make_filter(self, day: int, ids_expected: int) -> IdFilter:
        """Build a filter and fill it from the table. It is used only once it is complete."""
        ((stored,),) = self._connection.rows(f"SELECT count() FROM seen WHERE {_is_of(day)}")
        taken = sum(each.size_bytes for other, each in self._filters.items() if other != day)
        room = capacity_of(max(FILTER_BYTES_MAX - taken, 0))
        made = IdFilter(max(min(max(stored, ids_expected), room), CAPACITY_MIN))
        for hashes in read_ahead(self._stored_hashes(day, stored)):
            made.add(hashes)
        self._filters[day] = made
        return made

    def _stored_hashes(self, day: int, count: int) -> Iterator[Hashes]:
        """Yield the ids of a day in pieces, in the table's order."""
        pieces = min(count // _IDS_AT_ONCE + 1, _FIRST_BYTES)
        cuts = [number * _FIRST_BYTES // pieces for number in range(pieces + 1)]
        for low, high in itertools.pairwise(cuts):
            first, last = f"{low:02x}{'00' * 15}", f"{high - 1:02x}{'ff' * 15}"
            bounds = f"toFixedString(unhex('{first}'), 16) AND toFixedString(unhex('{last}'), 16)"
            sql = f"SELECT id_hash FROM seen WHERE {_is_of(day)} AND id_hash BETWEEN {bounds}"
            yield hashes_from(self._connection.binary(sql))

    def _looked_up(self, found: Mapping[int, npt.NDArray[np.intp]], hashes: Hashes) -> dict[int, list[int]]:
        if sum(map(len, found.values())) > _INLINE_IDS_MAX:
            self._connection.run(STAGED_CANDIDATES)
            self._connection.run("TRUNCATE TABLE staged_candidates")
            self._connection.insert_arrow("staged_candidates", id_candidates_as_arrow(found, hashes))
            ids_by_day = {day: _STAGED_CANDIDATES.format(day=day) for day in found}
        else:
            ids_by_day = {day: _as_texts(hashes[places]) for day, places in found.items()}
        queries = [_COUNTED_ON.format(day=day, ids=ids) for day, ids in ids_by_day.items()]
        counted = np.frombuffer(self._connection.binary(" UNION ALL ".join(queries)), _COUNTED)
        moments: dict[bytes, list[int]] = {}
        for hash_, received_at in counted.tolist():
            moments.setdefault(hash_, []).append(received_at)
        places = np.concatenate(list(found.values())).tolist() if moments else ()
        hash_by_place = {place: hashes[place].astype(">u8").tobytes() for place in places}
        return {place: moments[hash_] for place, hash_ in hash_by_place.items() if hash_ in moments}

    def _stored_days(self) -> dict[int, int]:
        rows = self._connection.read(_DAYS, {})
        return {day_number(date.fromisoformat(day)): count for day, count in rows}


def _is_of(day: int) -> str:
    return f"received_day = toDate(toUInt16({day}))"


def hashes_from(rows: bytes) -> Hashes:
    """Return 16-byte hashes as two integers each, big-endian."""
    return np.frombuffer(rows, ">u8").astype(np.uint64).reshape(-1, 2)


def _as_texts(hashes: Hashes) -> str:
    return ",".join(f"unhex('{each.tobytes().hex()}')" for each in hashes.astype(">u8"))


def read_ahead(pieces: Iterator[Hashes]) -> Iterator[Hashes]:
    """Yield the pieces while the next one is being read, so that the engine and numpy work in parallel."""
    with ThreadPoolExecutor(1, thread_name_prefix="ids") as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece


_HASHED_ROW: Final = np.dtype([("seq", "<u8"), ("hash", "V16")])  # as the engine writes them
_RECEIVED_ID: Final = np.dtype([("received_at", "<i8"), ("hash", "V16")])


class StagedIds(NamedTuple):
    """The rows that have an id, in order of arrival."""

    places: npt.NDArray[np.intp]  # among all staged rows
    seqs: npt.NDArray[np.uint64]
    hashes: Hashes
    received_days: npt.NDArray[np.int64]  # since 1970

    def without(self, seqs: Collection[int]) -> "StagedIds":
        if not seqs:
            return self
        is_left = ~np.isin(self.seqs, np.fromiter(seqs, np.uint64, len(seqs)))
        return StagedIds(self.places[is_left], self.seqs[is_left], self.hashes[is_left], self.received_days[is_left])


NO_IDS: Final = StagedIds(
    np.zeros(0, np.intp), np.zeros(0, np.uint64), np.zeros((0, 2), np.uint64), np.zeros(0, np.int64)
)


def staged_ids(rows: EventRows, hashed: bytes) -> StagedIds:
    """Match the engine's id hashes, which are in any order, with their rows."""
    made = np.frombuffer(hashed, _HASHED_ROW)
    places = np.flatnonzero(np.frombuffer(rows.id.lengths, np.int32))
    seqs = np.frombuffer(rows.seq, np.uint64)[places]
    if len(made) != len(seqs):
        raise WarehouseUnavailableError("the staged rows are lost")
    if not np.array_equal(made["seq"], seqs):
        ranks = np.empty(len(seqs), np.intp)
        ranks[np.argsort(seqs)] = np.argsort(made["seq"])
        made = made[ranks]
    days = np.frombuffer(rows.received_at, np.int64)[places] // DAY_MS
    return StagedIds(places, seqs, hashes_from(made["hash"].tobytes()), days)


def received_ids(rows: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Hashes]:
    """Return the time and day of receipt of each, and its hash."""
    found = np.frombuffer(rows, _RECEIVED_ID)
    received_at = found["received_at"].astype(np.int64)
    return received_at, received_at // DAY_MS, hashes_from(found["hash"].tobytes())


def same_ids(ids: StagedIds, seen: SeenIds) -> list[SameId]:
    """Return the ids that were already counted, and those shared by several rows."""
    if not len(ids.places):
        return []
    counted_at = seen.counted_at(ids.hashes, int(ids.received_days.min()))
    shared = _shared(ids.hashes)
    in_groups = {place for group in shared for place in group}
    groups = shared + [[place] for place in counted_at if place not in in_groups]
    return [SameId(ids.places[group].tolist(), counted_at.get(group[0], [])) for group in groups]


def _shared(hashes: Hashes) -> list[list[int]]:
    """Return the indexes of hashes that occur more than once, grouped by hash, in order."""
    ordered = np.sort(hashes[:, 0])
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return []  # The common case: sorting alone is fast.
    groups: dict[bytes, list[int]] = {}
    for place in np.flatnonzero(np.isin(hashes[:, 0], repeated)).tolist():
        groups.setdefault(hashes[place].tobytes(), []).append(place)
    return [group for group in groups.values() if len(group) > 1]
