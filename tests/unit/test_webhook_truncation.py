"""Texts of customers are truncated."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.ingest.webhooks.entries import CHARACTERS_MAX, MARK, truncate_texts, truncated

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=CHARACTERS_MAX + 1, max_size=CHARACTERS_MAX + 200)
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"


@given(TEXTS)
def test_a_long_text_keeps_its_beginning_and_a_fingerprint_of_the_whole(text):
    kept = truncate_texts({"name": text})
    short = kept.texts["name"]
    assert short.endswith(MARK)
    assert text.startswith(short.removesuffix(MARK))
    assert len(short) <= CHARACTERS_MAX
    assert kept.fingerprints == {
        "name": {
            "chars": len(text),
            "utf8_bytes": len(text.encode()),
            "sha256_64": hashlib.sha256(text.encode()).hexdigest()[:16],
        }
    }


@pytest.mark.parametrize("character", ["e\u0301", FAMILY, "\U0001f44d\U0001f3fd", "\u2764\ufe0f"])
@pytest.mark.parametrize("shift", range(8))
def test_a_visible_character_is_not_split(character, shift):
    kept = truncated("x" * shift + character * CHARACTERS_MAX).removesuffix(MARK)[shift:]
    assert kept == character * (len(kept) // len(character))


def test_an_endless_character_is_split_anyway():
    assert truncated("e" + "\u0301" * 2000) == "e" + "\u0301" * (CHARACTERS_MAX - len(MARK) - 1) + MARK


def test_a_text_at_the_limit_is_not_truncated():
    kept = truncate_texts({"name": "x" * CHARACTERS_MAX})
    assert (kept.texts, kept.fingerprints) == ({"name": "x" * CHARACTERS_MAX}, {})


def test_only_texts_are_kept_each_by_its_path():
    given_fields = {
        "name": "Ada",
        "nothing": None,
        "empty": "",
        "number": 5,
        "list": ["x"],
        "address": {"city": "Paris", "more": {"line": "1", "deeper": {"lost": "x"}}},
    }
    assert truncate_texts(given_fields).texts == {"name": "Ada", "address.city": "Paris", "address.more.line": "1"}


def test_the_number_of_fields_is_bounded():
    kept = truncate_texts({"fields": {str(number): "x" * 5000 for number in range(10_000)}, "x" * 5000: "x"})
    assert len(kept.texts) == 64
    assert sum(map(len, kept.texts.values())) <= 64 * CHARACTERS_MAX
