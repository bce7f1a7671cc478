import pytest

from mauve.access import keys, tokens
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.ids import SystemRandomness
from mauve.core.problems import Problem
from mauve.core.secret import Secret


class FixedRandomness:
    def base62(self, length):
        return ("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" * 2)[:length]


def test_a_key_is_a_prefix_34_random_characters_and_a_checksum():
    minted = keys.mint(KeyKind.SERVER, Environment.LIVE, FixedRandomness())
    assert minted.reveal() == "sk_live_0123456789ABCDEFGHIJKLMNOPQRSTUVWX" + "47EAjH"
    assert keys.masked(minted.reveal()) == "sk_live_0123…EAjH"
    assert keys.is_well_formed(minted.reveal())


@pytest.mark.parametrize(
    ("kind", "plane", "prefix"),
    [
        (KeyKind.SERVER, Environment.LIVE, "sk_live_"),
        (KeyKind.PUBLISHABLE, Environment.LIVE, "pk_live_"),
        (KeyKind.SERVER, Environment.TEST, "sk_test_"),
    ],
)
def test_each_kind_has_its_prefix(kind, plane, prefix):
    key = keys.mint(kind, plane, SystemRandomness()).reveal()
    assert key.startswith(prefix)
    assert len(key) == len(prefix) + 40
    assert keys.is_well_formed(key)


@pytest.mark.parametrize(
    "change", [lambda key: key + "0", lambda key: key[:-1], lambda key: key.swapcase(), lambda key: ""]
)
def test_an_altered_key_is_not_well_formed(change):
    assert not keys.is_well_formed(change(keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness()).reveal()))


def test_a_checksum_covers_the_prefix():
    key = keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness()).reveal()
    assert not keys.is_well_formed(key.replace("sk_live_", "pk_live_"))


def test_a_token_is_a_prefix_a_lookup_id_and_a_secret():
    minted, stored = tokens.mint(SystemRandomness())
    token = minted.reveal()
    assert len(token) == len("ctl_live_") + 16 + 40
    assert token.startswith(f"ctl_live_{stored.lookup_id}")


def test_a_malformed_token_is_refused_without_asking_the_catalog():
    class UnusedCatalog:
        def find(self, lookup_id):
            raise AssertionError("asked")

    for credential in (
        None,
        "",
        "ctl_live_",
        "ctl_live_" + "x" * 55,
        "ctl_live_" + "é" * 56,
        "sk_live_" + "x" * 40,
    ):
        with pytest.raises(Problem, match="unauthorized"):
            tokens.authenticate(UnusedCatalog(), credential)


def test_a_secret_is_shown_only_by_reveal():
    secret = Secret("whsec_x")
    assert "whsec_x" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "whsec_x"
    assert secret == Secret("whsec_x") != Secret("other")
