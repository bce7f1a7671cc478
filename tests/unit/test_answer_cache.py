"""The answer cache: what it finds, what it evicts, and how long an answer is fresh."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.times import DAY_MS
from mauve.query.answer_cache import Answer, AnswerCache, Freshness, is_fresh, replaces

NOW = 1_800_000_000_000
MOMENTS = st.integers(NOW - 10**10, NOW + 10**10)
KB = 1024


def an_answer(body=b"{}", read_at=NOW):
    return Answer(body, Freshness.HIT, read_at)


def aged(age_ms):
    return an_answer(read_at=NOW - age_ms)


def found(cache, keys):
    return "".join(key for key in keys if cache.find(key) is not None)


class TestFinding:
    def test_a_new_cache_is_empty(self):
        assert AnswerCache().find("a") is None

    def test_a_stored_answer_is_found_by_its_key_only_at_any_age(self):
        cache = AnswerCache()
        assert cache.keep("org_1", "a", an_answer(b"one", 1))
        assert cache.keep("org_1", "b", an_answer(b"two"))
        assert cache.find("a") == an_answer(b"one", 1)
        assert cache.find("b") == an_answer(b"two")
        assert cache.find("A") is None

    def test_an_older_answer_does_not_replace_a_newer_one(self):
        """It took longer to read: it began earlier and is stored later."""
        cache = AnswerCache()
        cache.keep("org_1", "a", an_answer(b"new", NOW + 100))
        assert cache.keep("org_1", "a", an_answer(b"old", NOW))
        assert cache.find("a").body == b"new"

    def test_after_the_clock_was_set_back_answers_are_stored_again(self):
        cache = AnswerCache()
        cache.keep("org_1", "a", an_answer(b"from the future", NOW + 7_200_000))
        cache.keep("org_1", "a", an_answer(b"now"))
        assert cache.find("a").body == b"now"

    def test_the_answers_about_a_project_are_forgotten(self):
        cache = AnswerCache()
        for key in ("proj_1/mau/", "proj_1/recent/mau/", "proj_10/mau/"):
            cache.keep("org_1", key, an_answer())
        cache.forget("proj_1")
        assert cache.find("proj_1/mau/") is None
        assert cache.find("proj_1/recent/mau/") is None
        assert cache.find("proj_10/mau/") is not None


class TestEviction:
    def test_a_full_cache_evicts_the_answer_stored_first(self):
        cache = AnswerCache(entries_max=3)
        for key in "abcad":
            cache.keep("org_1", key, an_answer())
        assert found(cache, "abcd") == "acd", "storing an answer again makes it the newest"

    def test_the_clock_does_not_decide_what_is_evicted(self):
        """It was three days ahead when the first ones were stored."""
        cache = AnswerCache(entries_max=3)
        for key in "abc":
            cache.keep("org_1", key, an_answer(read_at=NOW + 3 * DAY_MS))
        for key in "de":
            cache.keep("org_1", key, an_answer())
        assert found(cache, "abcde") == "cde"

    def test_bytes_are_limited_also_when_answers_are_replaced(self):
        cache = AnswerCache(bytes_max=100 * KB)
        for number in range(100):
            cache.keep("org_1", "a", an_answer(b"x" * 30 * KB, NOW + number))
        for key in "bcde":
            cache.keep("org_1", key, an_answer(b"x" * 30 * KB))
        assert found(cache, "abcde") == "cde"

    def test_an_answer_that_is_too_large_is_not_stored_and_that_is_reported(self):
        cache = AnswerCache(answer_bytes_max=10)
        assert cache.keep("org_1", "a", an_answer(b"x" * 10)) is True
        assert cache.keep("org_1", "b", an_answer(b"x" * 11)) is False
        assert found(cache, "ab") == "a"

    @pytest.mark.parametrize("bounds", [{"entries_max": 100}, {"bytes_max": 200 * KB}])
    def test_an_organization_cannot_evict_the_answers_of_others(self, bounds):
        cache = AnswerCache(**bounds)
        for number in range(10):
            cache.keep("org_small", f"small {number}", an_answer())
        for number in range(10_000):
            cache.keep("org_hostile", f"hostile {number}", an_answer(b"x" * KB))
        assert all(cache.find(f"small {number}") for number in range(10))
        assert cache.find("hostile 9999") is not None, "it still has what is left"

    def test_many_organizations_share_the_cache_evenly(self):
        cache = AnswerCache(entries_max=100)
        for number in range(1_000):
            for organization in range(10):
                cache.keep(f"org_{organization}", f"{organization}/{number}", an_answer())
        for organization in range(10):
            kept = [number for number in range(1_000) if cache.find(f"{organization}/{number}")]
            assert 9 <= len(kept) <= 11, organization

    def test_many_threads_may_use_the_cache_at_once(self):
        cache = AnswerCache(entries_max=50)
        wrong = []

        def work(number):
            for turn in range(200):
                key = f"{number}-{turn % 17}"
                cache.keep(f"org_{number}", key, an_answer(key.encode(), NOW + turn))
                answer = cache.find(key)
                if answer is not None and answer.body != key.encode():
                    wrong.append((key, answer))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestFreshness:
    def test_an_answer_is_fresh_until_its_time_is_up(self):
        assert is_fresh(aged(0), NOW, 300)
        assert is_fresh(aged(299_999), NOW, 300)
        assert not is_fresh(aged(300_000), NOW, 300)

    def test_an_answer_from_the_future_is_not_fresh(self):
        assert not is_fresh(aged(-2 * 3_600_000), NOW, 300)
        assert not is_fresh(aged(-CLOCK_SLACK_MS - 1), NOW, 300)

    def test_a_small_clock_difference_does_no_harm(self):
        assert is_fresh(aged(-CLOCK_SLACK_MS), NOW, 300)

    def test_nothing_is_fresh_when_caching_is_off(self):
        assert not is_fresh(aged(0), NOW, 0)
        assert not is_fresh(aged(-1), NOW, 0)

    def test_a_slower_reader_does_not_undo_the_answer_of_a_faster_one(self):
        assert replaces(aged(0), aged(1))
        assert replaces(aged(0), aged(0))
        assert not replaces(aged(1), aged(0))

    @given(MOMENTS, MOMENTS, st.integers(1, 86_400))
    def test_an_answer_that_is_not_fresh_is_replaced_by_a_new_one(self, read_at, now_ms, max_age_s):
        """Whatever the clock did: a cache that refused it would read again for every request."""
        kept = an_answer(read_at=read_at)
        assert is_fresh(kept, now_ms, max_age_s) or replaces(an_answer(read_at=now_ms), kept)

    @given(MOMENTS, MOMENTS, st.integers(1, 86_400))
    def test_no_answer_is_fresh_for_longer_than_allowed(self, read_at, now_ms, max_age_s):
        if is_fresh(an_answer(read_at=read_at), now_ms, max_age_s):
            assert abs(now_ms - read_at) < max_age_s * 1000 or read_at - now_ms <= CLOCK_SLACK_MS
