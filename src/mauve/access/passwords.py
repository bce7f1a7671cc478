"""Passwords: which are accepted, and how they are hashed and verified."""

import secrets
import threading
import unicodedata
from functools import cache
from typing import Final

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from mauve.core.secret import Secret

CHARACTERS_MIN: Final = 10
CHARACTERS_MAX: Final = 1024
_MEMORY_KIB: Final = 19 * 1024
_PASSES: Final = 2
_CONCURRENT_MAX: Final = 2  # Each takes 19 MiB and a core for about 55 ms.
_WAIT_S_MAX: Final = 2.0

hasher: Final = PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1, type=Type.ID)
_slots: Final = threading.BoundedSemaphore(_CONCURRENT_MAX)


class HashingBusyError(Exception):
    """Too many passwords are being checked at once."""


def password_from(text: str) -> Secret:
    """Return the typed password in normal form: the same characters can be encoded as different code points."""
    return Secret(unicodedata.normalize("NFKC", text))


def password_problem(password: Secret, email: str) -> str | None:
    text = password.reveal()
    if len(text) < CHARACTERS_MIN:
        return f"a password has at least {CHARACTERS_MIN} characters: a few words make a good one"
    if len(text) > CHARACTERS_MAX:
        return f"a password has at most {CHARACTERS_MAX} characters"
    if text.lower() == email:
        return "the password must not be the e-mail address"
    if len(set(text)) == 1:
        return "a password is more than one character repeated"
    return None


def hash_of(password: Secret) -> str:
    with _HashingSlot():
        return hasher.hash(password.reveal())


def matches(password: Secret, password_hash: str | None) -> bool:
    """Return whether the password matches a hash. A missing hash takes as long as a wrong password."""
    with _HashingSlot():
        try:
            return hasher.verify(hash_to_check(password_hash), password.reveal()) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False


def hash_to_check(password_hash: str | None) -> str:
    """Return the hash, or for an unknown account a dummy hash that nothing matches and that costs the same."""
    return password_hash or _dummy_hash()


@cache
def _dummy_hash() -> str:
    return hasher.hash(secrets.token_hex())


class _HashingSlot:
    def __enter__(self) -> None:
        if not _slots.acquire(timeout=_WAIT_S_MAX):
            raise HashingBusyError

    def __exit__(self, *_: object) -> None:
        _slots.release()
