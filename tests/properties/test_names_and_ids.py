import string

from hypothesis import given
from hypothesis import strategies as st

from mauve.access import keys, tokens
from mauve.core.app import Environment, app_name_from
from mauve.core.credential import KeyKind
from mauve.core.ids import ALPHABET, is_id, new_id
from mauve.web.messages import bearer_credential

BASE62 = st.text(ALPHABET, min_size=64, max_size=64)


class Drawn:
    def __init__(self, text):
        self._text = text

    def base62(self, length):
        return self._text[:length]


@given(st.text(max_size=200))
def test_normalizing_a_name_is_idempotent(text):
    name = app_name_from(text)
    if name is not None:
        assert 1 <= len(name) <= 80
        assert name == name.strip()
        assert "  " not in name
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in name)
        assert app_name_from(name) == name


@given(st.text(string.ascii_letters + "é👪", min_size=1, max_size=80), st.text(" \t\n", max_size=5))
def test_whitespace_around_a_name_does_not_matter(name, space):
    assert app_name_from(space + name + space) == name


@given(st.text(max_size=200))
def test_a_name_is_refused_only_for_a_reason(text):
    if app_name_from(text) is None:
        visible = " ".join(text.split())
        is_control = any(
            (ord(character) < 32 or 0x7F <= ord(character) < 0xA0) and character not in "\t\n\v\f\r"
            for character in text
        )
        assert is_control or not 1 <= len(visible) <= 80


@given(BASE62, st.sampled_from(["app", "key", "org", "proj", "tok"]))
def test_every_new_id_has_the_format_of_its_kind_and_of_no_other(text, prefix):
    made = new_id(prefix, Drawn(text))
    assert is_id(made, prefix)
    assert not any(is_id(made, other) for other in ("app", "key", "org", "proj", "tok") if other != prefix)


@given(st.text())
def test_text_that_is_not_an_id_is_recognized(text):
    assert is_id(text, "app") == (
        text.startswith("app_") and len(text) == 24 and all(character in ALPHABET for character in text[4:])
    )


@given(BASE62, st.sampled_from([KeyKind.SERVER, KeyKind.PUBLISHABLE]), st.data())
def test_one_wrong_character_makes_a_key_malformed(text, kind, data):
    key = keys.mint(kind, Environment.LIVE, Drawn(text)).reveal()
    assert keys.is_well_formed(key)
    place = data.draw(st.integers(8, len(key) - 1))
    other = data.draw(st.sampled_from(ALPHABET).filter(lambda character: character != key[place]))
    assert not keys.is_well_formed(key[:place] + other + key[place + 1 :])


@given(st.text())
def test_arbitrary_text_is_never_a_key(text):
    assert not keys.is_well_formed(text)


@given(BASE62)
def test_a_masked_key_shows_eight_characters_of_it(text):
    key = keys.mint(KeyKind.SERVER, Environment.LIVE, Drawn(text)).reveal()
    assert keys.masked(key) == f"sk_live_{key[8:12]}…{key[-4:]}"


@given(BASE62)
def test_a_token_is_56_characters_after_its_prefix(text):
    token, _ = tokens.mint(Drawn(text))
    assert token.reveal().removeprefix("ctl_live_") == text[:16] + text[:40]


@given(st.text())
def test_any_header_is_parsed_without_failing(text):
    credential = bearer_credential(text)
    if credential is not None:
        assert text.lower().startswith("bearer")
