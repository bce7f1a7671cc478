"""Encrypt webhook secrets and addresses of channels with AES-256-GCM, bound to the row that holds them.

A sealed secret is one format byte, the id of the master key, a nonce and the ciphertext. The id allows the master
key to be rotated: the new one seals, the old ones still open.
"""

import base64
import binascii
import hashlib
import os
from typing import Final

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret

MASTER_KEY_BYTES: Final = 32
_FORMAT: Final = b"\x01"
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12


class VaultError(Exception):
    """A master key or sealed secret is unusable. The message says what to do."""


def webhook_row(app_id: str, environment: Environment, provider: Provider) -> bytes:
    """Return the row that a sealed webhook secret belongs to. In another row it does not open."""
    return f"webhook-secret/{app_id}/{environment}/{provider}".encode()


def channel_row(org_id: str, channel_id: str) -> bytes:
    """Return the row that the sealed address of an alert channel belongs to."""
    return f"alert-channel/{org_id}/{channel_id}".encode()


class Vault:
    """Seal with the first master key; open with the key that sealed a secret."""

    def __init__(self, master_keys: Secret) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow to import

        keys = _master_keys_in(master_keys)
        if not keys:
            raise VaultError("the master key is empty: set MAUVE_MASTER_KEY, or restore master.key from your backup")
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._current_id = _id_of(keys[0])

    @property
    def current_key_id(self) -> str:
        return self._current_id.hex()

    def knows(self, key_id: str) -> bool:
        return bytes.fromhex(key_id) in self._ciphers

    def can_open(self, sealed: bytes) -> bool:
        """Return whether the master key that sealed it is available."""
        return sealed[1 : 1 + _KEY_ID_BYTES] in self._ciphers

    def seal(self, secret: Secret, row: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        ciphertext = self._ciphers[self._current_id].encrypt(nonce, secret.reveal().encode(), row)
        return _FORMAT + self._current_id + nonce + ciphertext

    def open(self, sealed: bytes, row: bytes) -> Secret:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to import

        key_id = sealed[1 : 1 + _KEY_ID_BYTES]
        nonce = sealed[1 + _KEY_ID_BYTES : 1 + _KEY_ID_BYTES + _NONCE_BYTES]
        cipher = self._ciphers.get(key_id)
        if cipher is None or sealed[:1] != _FORMAT:
            raise VaultError(f"sealed with the master key {key_id.hex()}, which is not here: add it back")
        try:
            plain = cipher.decrypt(nonce, sealed[1 + _KEY_ID_BYTES + _NONCE_BYTES :], row)
        except InvalidTag:
            raise VaultError("a sealed secret was altered or moved: save the secret again") from None
        return Secret(plain.decode())


def derived_keys(master_keys: Secret, purpose: bytes) -> list[bytes]:
    """Return a key of 32 bytes for another purpose from each master key, the current one first."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    keys = _master_keys_in(master_keys)
    return [HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key) for key in keys]


def new_master_key() -> str:
    return base64.b64encode(os.urandom(MASTER_KEY_BYTES)).decode()


def _master_keys_in(text: Secret) -> list[bytes]:
    return [_master_key_from(each) for each in text.reveal().replace(",", " ").split()]


def _master_key_from(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != MASTER_KEY_BYTES:
        raise VaultError(
            f"a master key is {MASTER_KEY_BYTES} bytes in base64: "
            "check MAUVE_MASTER_KEY, or the file master.key, for missing characters"
        )
    return key


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"mauve master key id" + key).digest()[:_KEY_ID_BYTES]
