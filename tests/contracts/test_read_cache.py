"""What every read cache promises."""

import itertools
import threading

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.times import DAY_MS
from mauve.stores.read_cache import CachedAnswer

KEYS = map(str, itertools.count())
NOW = 1_800_000_000_000


def an_answer(value=b"{}", stored_at=NOW):
    return CachedAnswer(value, stored_at)


def test_a_new_cache_is_empty(open_cache):
    assert open_cache().find("a") is None


def test_a_stored_answer_is_found_by_its_key_only(open_cache):
    cache = open_cache()
    assert cache.keep("a", an_answer(b"one"))
    assert cache.keep("b", an_answer(b"two", NOW + 1))
    assert cache.find("a") == an_answer(b"one")
    assert cache.find("b") == an_answer(b"two", NOW + 1)
    assert cache.find("A") is None


def test_an_answer_of_any_age_is_found(open_cache):
    cache = open_cache()
    cache.keep("a", an_answer(stored_at=1))
    assert cache.find("a") == an_answer(stored_at=1)


def test_any_text_is_a_key_and_any_bytes_are_a_value(open_cache):
    cache = open_cache()
    for key in ("", "\0", "é", "\ud800", "x" * 100_000):
        cache.keep(key, an_answer(b"\x00\xff" + key.encode("utf-8", "surrogatepass")))
    other = open_cache()
    for key in ("", "\0", "é", "\ud800", "x" * 100_000):
        assert other.find(key).value == b"\x00\xff" + key.encode("utf-8", "surrogatepass")
    cache.keep("empty", an_answer(b""))
    assert other.find("empty") == an_answer(b"")


def test_another_process_finds_a_stored_answer(open_cache):
    first, second = open_cache(), open_cache()
    assert second.find("a") is None
    first.keep("a", an_answer(b"one"))
    assert second.find("a") == an_answer(b"one")


def test_a_newer_answer_of_another_process_is_seen_within_a_second(open_cache, ticks):
    first, second = open_cache(), open_cache()
    first.keep("a", an_answer(b"one"))
    assert second.find("a").value == b"one"
    first.keep("a", an_answer(b"two", NOW + 1))
    ticks.now_s += 1
    assert second.find("a").value == b"two"


def test_a_found_answer_is_served_again_for_a_second(open_cache, ticks, tmp_path):
    """Even without the file: it is not read."""
    cache = open_cache()
    cache.keep("a", an_answer())
    for path in tmp_path.glob("cache.db*"):
        path.unlink()
    ticks.now_s += 0.9
    assert cache.find("a") == an_answer()


def test_a_reader_never_sees_an_older_answer_after_a_newer_one(open_cache, ticks):
    """The other process has an answer that took longer: it began earlier and is stored later."""
    first, second = open_cache(), open_cache()
    first.keep("a", an_answer(b"new", NOW + 100))
    assert first.find("a").value == b"new"
    second.keep("a", an_answer(b"old", NOW))
    ticks.now_s += 5
    assert first.find("a").value == b"new"
    assert second.find("a").value == b"new"


def test_after_the_clock_was_set_back_answers_are_stored_again(open_cache, ticks):
    first, second = open_cache(), open_cache()
    first.keep("a", an_answer(b"from the future", NOW + 7_200_000))
    first.keep("a", an_answer(b"now"))
    assert first.find("a").value == b"now"
    ticks.now_s += 1
    assert second.find("a") == first.find("a") == an_answer(b"now")


def test_stored_answers_survive_reopening(open_cache):
    cache = open_cache()
    cache.keep("a", an_answer(b"one"))
    cache.close()
    assert open_cache().find("a") == an_answer(b"one")


def test_the_answers_about_a_project_are_forgotten_by_every_process(open_cache, ticks):
    first, second = open_cache(), open_cache()
    for key in ("proj_1/mau/", "proj_1/dau/", "proj_10/mau/"):
        first.keep(key, an_answer(key.encode()))
        assert second.find(key) is not None
    open_cache().forget("proj_1")
    ticks.now_s += 1
    for cache in (first, second, open_cache()):
        assert cache.find("proj_1/mau/") is None
        assert cache.find("proj_1/dau/") is None
        assert cache.find("proj_10/mau/") == an_answer(b"proj_10/mau/")


def test_a_full_cache_evicts_the_oldest_answer(open_cache):
    cache = open_cache(entries_max=3, recent_entries_max=1)
    for key in "abcd":
        cache.keep(key, an_answer(key.encode()))
    fresh = open_cache(entries_max=3)
    assert [fresh.find(key) is not None for key in "abcd"] == [False, True, True, True]


def test_storing_an_answer_again_makes_it_the_newest(open_cache):
    cache = open_cache(entries_max=3)
    for key in "abcad":
        cache.keep(key, an_answer(key.encode()))
    fresh = open_cache(entries_max=3)
    assert [fresh.find(key) is not None for key in "abcd"] == [True, False, True, True]


def test_the_clock_does_not_decide_what_is_evicted(open_cache):
    """It was three days ahead when the first ones were stored."""
    cache = open_cache(entries_max=3)
    for key in "abc":
        cache.keep(key, an_answer(key.encode(), NOW + 3 * DAY_MS))
    for key in "de":
        cache.keep(key, an_answer(key.encode(), NOW))
    fresh = open_cache(entries_max=3)
    assert [fresh.find(key) is not None for key in "abcde"] == [False, False, True, True, True]


def test_bytes_are_limited_too(open_cache):
    cache = open_cache(bytes_max=1000, recent_bytes_max=1)
    for key in "abcde":
        cache.keep(key, an_answer(key.encode() * 300))
    assert [cache.find(key) is not None for key in "abcde"] == [False, False, True, True, True]
    cache.keep("f", an_answer(b"f" * 1000))
    assert [cache.find(key) is not None for key in "abcdef"] == [False] * 5 + [True]


def test_an_answer_that_is_too_large_is_not_stored_and_that_is_reported(open_cache):
    cache = open_cache(value_bytes_max=10)
    assert cache.keep("a", an_answer(b"x" * 10)) is True
    assert cache.keep("b", an_answer(b"x" * 11)) is False
    assert cache.find("b") is None
    assert cache.find("a") is not None


def test_many_threads_may_use_the_cache_at_once(open_cache):
    cache = open_cache(entries_max=50, recent_entries_max=10)
    wrong = []

    def work(number):
        for turn in range(50):
            key = f"{number}-{turn % 7}"
            cache.keep(key, an_answer(key.encode(), NOW + turn))
            found = cache.find(key)
            if found is not None and found.value != key.encode():
                wrong.append((key, found))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from("kf"), st.floats(0, 2)), max_size=25
    )
)
def test_no_process_ever_sees_an_older_answer_again(open_cache, ticks, steps):
    """Two processes store and find one key, with answers that are late by less than the clock's slack."""
    caches = {"a": open_cache(), "b": open_cache()}
    key = next(KEYS)
    seen = {"a": 0, "b": 0}
    now = NOW
    for who, lag, action, pause in steps:
        ticks.now_s += pause
        now += int(pause * 1000) + 1
        if action == "k":
            stored_at = now - lag * CLOCK_SLACK_MS // 4
            caches[who].keep(key, an_answer(b"%d" % stored_at, stored_at))
        found = caches[who].find(key)
        if found is not None:
            assert found.value == b"%d" % found.stored_at
            assert found.stored_at >= seen[who]
            seen[who] = found.stored_at
    ticks.now_s += 2  # longer than an answer is found without a look at the file, however sums are rounded
    assert caches["a"].find(key) == caches["b"].find(key)
