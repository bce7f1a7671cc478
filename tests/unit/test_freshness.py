from hypothesis import given
from hypothesis import strategies as st

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.stores.read_cache import CachedAnswer, is_fresh, replaces

NOW = 1_800_000_000_000
MOMENTS = st.integers(NOW - 10**10, NOW + 10**10)


def an_answer(age_ms):
    return CachedAnswer(b"", NOW - age_ms)


def test_an_answer_is_fresh_until_its_time_is_up():
    assert is_fresh(an_answer(0), NOW, 300)
    assert is_fresh(an_answer(299_999), NOW, 300)
    assert not is_fresh(an_answer(300_000), NOW, 300)


def test_an_answer_from_the_future_is_not_fresh():
    assert not is_fresh(an_answer(-2 * 3_600_000), NOW, 300)
    assert not is_fresh(an_answer(-CLOCK_SLACK_MS - 1), NOW, 300)


def test_a_small_clock_difference_does_no_harm():
    assert is_fresh(an_answer(-CLOCK_SLACK_MS), NOW, 300)


def test_nothing_is_fresh_when_caching_is_off():
    assert not is_fresh(an_answer(0), NOW, 0)
    assert not is_fresh(an_answer(-1), NOW, 0)


def test_a_slower_reader_does_not_undo_the_answer_of_a_faster_one():
    assert replaces(an_answer(0), an_answer(1))
    assert replaces(an_answer(0), an_answer(0))
    assert not replaces(an_answer(1), an_answer(0))


@given(MOMENTS, MOMENTS, st.integers(1, 86_400))
def test_an_answer_that_is_not_fresh_is_replaced_by_a_new_one(stored_at, now_ms, max_age_s):
    """Whatever the clock did: a cache that refused it would read again for every request."""
    kept = CachedAnswer(b"", stored_at)
    assert is_fresh(kept, now_ms, max_age_s) or replaces(CachedAnswer(b"", now_ms), kept)


@given(MOMENTS, MOMENTS, st.integers(1, 86_400))
def test_no_answer_is_fresh_for_longer_than_allowed(stored_at, now_ms, max_age_s):
    if is_fresh(CachedAnswer(b"", stored_at), now_ms, max_age_s):
        assert abs(now_ms - stored_at) < max_age_s * 1000 or stored_at - now_ms <= CLOCK_SLACK_MS
