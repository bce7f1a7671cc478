"""A Bloom filter over id hashes. Pure.

It never denies an id that was added, and takes few others for added: those are looked up in the table. Eight bits stand
for an id, four each in two words, so that an id that is new mostly costs one look into memory.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]  # of two columns: the halves of a 128-bit hash

BITS_PER_ID: Final = 20  # when it is full: about one id in 2,500 is taken for added by mistake
_WORD_BITS: Final = 64
_HALF: Final = np.uint64(32)
_PAIR_BITS: Final = np.uint64(12)
_PAIR: Final = np.uint64(4095)
_numbers = np.arange(4096, dtype=np.uint64)
# A word with the two bits that twelve bits of a hash choose: reading it is quicker than shifting.
_PAIR_MASKS: Final = np.uint64(1) << (_numbers & np.uint64(63)) | np.uint64(1) << (_numbers >> np.uint64(6))


class IdFilter:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._words = np.zeros(_words_for(capacity), np.uint64)

    @property
    def size_bytes(self) -> int:
        return self._words.nbytes

    def add(self, hashes: Hashes) -> None:
        for half in (hashes[:, 0], hashes[:, 1]):
            self._set_bits(self._places(half), _masks(half))
        self.count += len(hashes)

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.intp]:
        """Return the positions of the hashes that were added, and of a few that were not."""
        hits = np.flatnonzero(self._has_bits(hashes[:, 0]))
        return hits[self._has_bits(hashes[hits, 1])]

    def _set_bits(self, places: npt.NDArray[np.intp], masks: npt.NDArray[np.uint64]) -> None:
        """Set the bits of all. Of two at one place one is lost, and set in the next round: quicker than `ufunc.at`."""
        while len(places):
            self._words[places] |= masks
            lost = np.flatnonzero(self._words[places] & masks != masks)
            places, masks = places[lost], masks[lost]

    def _has_bits(self, half: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        masks = _masks(half)
        is_set: npt.NDArray[np.bool_] = self._words[self._places(half)] & masks == masks
        return is_set

    def _places(self, half: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """Return the word of each, by the upper 32 bits, spread over any number of words without a division."""
        return ((half >> _HALF) * np.uint64(len(self._words)) >> _HALF).astype(np.intp)


def bytes_for(capacity: int) -> int:
    return _words_for(capacity) * _WORD_BITS // 8


def capacity_of(size_bytes: int) -> int:
    return size_bytes * 8 // BITS_PER_ID


def _words_for(capacity: int) -> int:
    return max(1, capacity * BITS_PER_ID // _WORD_BITS)


def _masks(half: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a word with up to four bits, by the lower 24 bits of each."""
    masks: npt.NDArray[np.uint64] = _PAIR_MASKS[half & _PAIR] | _PAIR_MASKS[half >> _PAIR_BITS & _PAIR]
    return masks
