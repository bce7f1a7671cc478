import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.stores.warehouse.id_filter import BITS_PER_ID, IdFilter, capacity_of, masks_of

halves = st.integers(0, 2**64 - 1)
hashes = st.lists(st.tuples(halves, halves), max_size=200).map(lambda found: np.array(found, np.uint64).reshape(-1, 2))


@given(hashes, hashes, st.integers(1, 1_000))
def test_an_added_id_is_never_denied(first, second, capacity):
    known = IdFilter(capacity)
    known.add(first)
    known.add(second)
    for added in (first, second):
        assert known.may_hold(added, masks_of(added[:, 0])).tolist() == list(range(len(added)))


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_a_full_filter_has_few_false_positives(count):
    random = np.random.default_rng(1)
    known = IdFilter(count)
    known.add(random.integers(0, 2**64, (count, 2), np.uint64))
    strangers = random.integers(0, 2**64, (200_000, 2), np.uint64)
    assert len(known.may_hold(strangers, masks_of(strangers[:, 0]))) / 200_000 < 1 / 5_000


def test_an_empty_filter_holds_nothing():
    nothing = np.zeros((5, 2), np.uint64)
    assert not len(IdFilter(10).may_hold(nothing, masks_of(nothing[:, 0])))


def test_a_filter_has_the_announced_size():
    size_bytes = IdFilter(1_000_000).size_bytes
    assert size_bytes == pytest.approx(1_000_000 * BITS_PER_ID / 8, abs=64)
    assert capacity_of(size_bytes) == pytest.approx(1_000_000, abs=20)
