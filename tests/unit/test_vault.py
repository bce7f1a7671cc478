import base64

import pytest

from mauve.access.vault import Vault, VaultError, new_master_key, webhook_row
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret

ROW = webhook_row("app_1", Environment.LIVE, Provider.BILLER_A)


@pytest.fixture
def vault():
    return Vault(Secret(new_master_key()))


def test_a_sealed_secret_opens_in_its_own_row(vault):
    sealed = vault.seal(Secret("whsec_é\x00"), ROW)
    assert vault.open(sealed, ROW).reveal() == "whsec_é\x00"
    assert b"whsec" not in sealed


def test_the_same_secret_never_has_the_same_ciphertext(vault):
    assert vault.seal(Secret("x"), ROW) != vault.seal(Secret("x"), ROW)


@pytest.mark.parametrize(
    "row",
    [
        webhook_row("app_2", Environment.LIVE, Provider.BILLER_A),
        webhook_row("app_1", Environment.TEST, Provider.BILLER_A),
        webhook_row("app_1", Environment.LIVE, Provider.BILLER_B),
    ],
)
def test_a_sealed_secret_moved_to_another_row_does_not_open(vault, row):
    with pytest.raises(VaultError, match="altered or moved"):
        vault.open(vault.seal(Secret("x"), ROW), row)


def test_every_altered_byte_is_detected(vault):
    sealed = vault.seal(Secret("x"), ROW)
    for place in range(len(sealed)):
        altered = bytearray(sealed)
        altered[place] ^= 1
        with pytest.raises(VaultError):
            vault.open(bytes(altered), ROW)
    with pytest.raises(VaultError):
        vault.open(b"", ROW)


def test_a_new_master_key_seals_and_the_old_one_still_opens():
    old, new = new_master_key(), new_master_key()
    sealed = Vault(Secret(old)).seal(Secret("x"), ROW)
    rotated = Vault(Secret(f"{new}\n{old}\n"))
    assert rotated.open(sealed, ROW).reveal() == "x"
    assert rotated.current_key_id == Vault(Secret(new)).current_key_id
    assert rotated.knows(Vault(Secret(old)).current_key_id)


def test_an_unknown_master_key_is_named_in_the_error(vault):
    other = Vault(Secret(new_master_key()))
    with pytest.raises(VaultError, match=other.current_key_id):
        vault.open(other.seal(Secret("x"), ROW), ROW)


@pytest.mark.parametrize("text", ["", "  \n", "short", base64.b64encode(bytes(31)).decode(), "!" * 44])
def test_an_invalid_master_key_is_refused_without_echoing_it(text):
    with pytest.raises(VaultError) as refusal:
        Vault(Secret(text))
    assert not text.strip() or text.strip() not in str(refusal.value)
