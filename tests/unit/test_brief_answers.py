"""Answers that are kept for an instant."""

from mauve.query.brief_answers import BriefAnswers
from mauve.stores.read_cache import CachedAnswer

NOW = 1_800_000_000_000


def test_an_answer_is_found_until_its_time_is_up():
    brief = BriefAnswers(2.0)
    brief.keep("a", CachedAnswer(b"1", NOW))
    assert brief.find("a", NOW + 1_999) == CachedAnswer(b"1", NOW)
    assert brief.find("a", NOW + 2_000) is None
    assert brief.find("b", NOW) is None
    assert brief.last("a") == CachedAnswer(b"1", NOW), "it is kept until it is dropped"
    assert brief.last("b") is None


def test_it_is_bounded_in_entries():
    brief = BriefAnswers(2.0, entries_max=2)
    for key in "abc":
        brief.keep(key, CachedAnswer(b"1", NOW))
    assert [brief.find(key, NOW) is not None for key in "abc"] == [False, True, True]


def test_it_is_bounded_in_bytes_also_when_answers_are_replaced():
    brief = BriefAnswers(2.0, bytes_max=10)
    for _ in range(100):
        brief.keep("a", CachedAnswer(b"12345", NOW))
    brief.keep("b", CachedAnswer(b"12345", NOW))
    assert [brief.find(key, NOW) is not None for key in "ab"] == [True, True]
    brief.keep("c", CachedAnswer(b"12345678901", NOW))
    assert [brief.find(key, NOW) for key in "abc"] == [None] * 3
