"""The ids of staged rows: which ones repeat each other, and which were already counted."""

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mauve.core.times import DAY_MS
from mauve.stores.warehouse import EventRows, SameId, WarehouseUnavailableError
from mauve.stores.warehouse.id_filter import Hashes
from mauve.stores.warehouse.seen_ids import SeenIds, hashes_from

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
