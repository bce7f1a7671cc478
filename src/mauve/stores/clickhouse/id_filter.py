"""A Bloom filter over id hashes. Pure.

It never denies an id that was added, and takes few others for added: those are looked up in the table. An id sets up to
five bits in each of two words, so that an id that is new mostly costs one look into memory.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.uint64]
Hashes: TypeAlias = Numbers  # of two columns: the halves of a 128-bit hash

BITS_PER_ID: Final = 28  # when it is full: about one id in 20,000 is taken for added by mistake
_WORD_BITS: Final = 64
_BITS_IN_WORD: Final = 5
_UPPER: Final = np.uint64(32)
_LOWER: Final = np.uint64(0xFFFF)


class Bits(NamedTuple):
    """What half a hash means in any filter: where its word lies, from 0 to 2^32, and which bits of it are set."""

    place: Numbers
    mask: Numbers


class IdFilter:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._words = np.zeros(_words_for(capacity), np.uint64)

    @property
    def size_bytes(self) -> int:
        return self._words.nbytes

    def add(self, hashes: Hashes) -> None:
        for bits in (bits_of(hashes[:, 0]), bits_of(hashes[:, 1])):
            self._set(self._places(bits), bits.mask)
        self.count += len(hashes)

    def may_hold(self, hashes: Hashes, first: Bits) -> npt.NDArray[np.intp]:
        """Return the positions of the hashes that were added, and of a few that were not.

        `first` are the bits of their first halves, which many filters are asked for.
        """
        hits = np.flatnonzero(self._has(first))
        return hits[self._has(bits_of(hashes[hits, 1]))]

    def _set(self, places: npt.NDArray[np.intp], masks: Numbers) -> None:
        """Set the bits of all. Of two in one word one is lost, and set in the next round: quicker than `ufunc.at`."""
        while len(places):
            self._words[places] |= masks
            lost = np.flatnonzero(self._words[places] & masks != masks)
            places, masks = places[lost], masks[lost]

    def _has(self, bits: Bits) -> npt.NDArray[np.bool_]:
        is_set: npt.NDArray[np.bool_] = self._words[self._places(bits)] & bits.mask == bits.mask
        return is_set

    def _places(self, bits: Bits) -> npt.NDArray[np.intp]:
        """Spread the places over the words: a multiplication in place of a division."""
        return (bits.place * np.uint64(len(self._words)) >> _UPPER).astype(np.intp)


def bits_of(half: Numbers) -> Bits:
    return Bits(half >> _UPPER, _MASKS[half & _LOWER])


def bytes_for(capacity: int) -> int:
    return _words_for(capacity) * _WORD_BITS // 8


def capacity_of(size_bytes: int) -> int:
    return size_bytes * 8 // BITS_PER_ID


def _words_for(capacity: int) -> int:
    return max(1, capacity * BITS_PER_ID // _WORD_BITS)


def _made_masks() -> Numbers:
    """Return a word for each value of sixteen bits: reading one is quicker than shifting five times."""
    positions = np.random.default_rng(0).integers(0, _WORD_BITS, (int(_LOWER) + 1, _BITS_IN_WORD), np.uint64)
    masks: Numbers = np.bitwise_or.reduce(np.uint64(1) << positions, axis=1)
    return masks


_MASKS: Final = _made_masks()
