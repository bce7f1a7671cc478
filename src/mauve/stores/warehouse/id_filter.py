"""A Bloom filter over id hashes. Pure.

It has no false negatives and few false positives, which are resolved by the table. An id sets up to five bits in each
of two words of the same cache line, which costs one memory access.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.uint64]
Hashes: TypeAlias = Numbers  # two columns: the halves of a 128-bit hash

BITS_PER_ID: Final = 36  # when full: a false-positive rate of about 1 in 85,000
_WORD_BITS: Final = 64
_LINE_BITS: Final = 512  # a cache line
_BITS_IN_WORD: Final = 5
_UPPER: Final = np.uint64(32)
_LOWER: Final = np.uint64(0xFFFF)
_UPPERMOST: Final = np.uint64(48)
_STEP_BITS: Final = np.uint64(16)
_OTHER_WORDS: Final = np.uint64(7)


class IdFilter:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._words = np.zeros(_words_for(capacity), np.uint64)

    @property
    def size_bytes(self) -> int:
        return self._words.nbytes

    def add(self, hashes: Hashes) -> None:
        first, second = hashes[:, 0], hashes[:, 1]
        places = self._first_places(first)
        self._set(places, masks_of(first))
        self._set(_second_places(places, second), masks_of(second))
        self.count += len(hashes)

    def may_hold(self, hashes: Hashes, first_masks: Numbers) -> npt.NDArray[np.intp]:
        """Return the indexes of the hashes that were added, and of a few false positives.

        `first_masks` are the masks of their first halves, computed once for many filters.
        """
        places = self._first_places(hashes[:, 0])
        hits = np.flatnonzero(self._words[places] & first_masks == first_masks)
        second = hashes[hits, 1]
        second_masks = masks_of(second)
        is_added: npt.NDArray[np.bool_] = (
            self._words[_second_places(places[hits], second)] & second_masks == second_masks
        )
        return hits[is_added]

    def _set(self, places: npt.NDArray[np.intp], masks: Numbers) -> None:
        """Set all bits. If two share a word, one is lost and set in the next round: faster than `ufunc.at`."""
        while len(places):
            self._words[places] |= masks
            lost = np.flatnonzero(self._words[places] & masks != masks)
            places, masks = places[lost], masks[lost]

    def _first_places(self, half: Numbers) -> npt.NDArray[np.intp]:
        """Map the upper 32 bits to all words, by multiplication instead of division."""
        return ((half >> _UPPER) * np.uint64(len(self._words)) >> _UPPER).astype(np.intp)


def _second_places(places: npt.NDArray[np.intp], half: Numbers) -> npt.NDArray[np.intp]:
    """Return another word of the same cache line for each, to avoid a second memory access."""
    steps = (half >> _UPPERMOST) * _OTHER_WORDS >> _STEP_BITS
    others: npt.NDArray[np.intp] = places ^ (steps.astype(np.intp) + 1)
    return others


def masks_of(half: Numbers) -> Numbers:
    masks: Numbers = _MASKS[half & _LOWER]
    return masks


def capacity_of(size_bytes: int) -> int:
    return size_bytes * 8 // BITS_PER_ID


def _words_for(capacity: int) -> int:
    return -(-capacity * BITS_PER_ID // _LINE_BITS) * _LINE_BITS // _WORD_BITS


def _build_masks() -> Numbers:
    """Return a mask for each 16-bit value: a lookup is faster than five shifts."""
    positions = np.random.default_rng(0).integers(0, _WORD_BITS, (int(_LOWER) + 1, _BITS_IN_WORD), np.uint64)
    masks: Numbers = np.bitwise_or.reduce(np.uint64(1) << positions, axis=1)
    return masks


_MASKS: Final = _build_masks()
