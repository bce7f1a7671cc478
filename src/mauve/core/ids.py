"""Opaque ids and their format."""

import re
import secrets
from typing import Final, Protocol

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARACTERS: Final = 20  # about 119 bits: unique and unguessable
_ID = re.compile(rf"(app|key|org|proj|tok|usr|lnk|ses|rule|chan|msg)_[0-9A-Za-z]{{{_RANDOM_CHARACTERS}}}", re.ASCII)


class Randomness(Protocol):
    """A source of unguessable text."""

    def base62(self, length: int) -> str:
        """Return `length` characters of [0-9A-Za-z], each equally likely."""
        ...


class SystemRandomness:
    def base62(self, length: int) -> str:
        return "".join(secrets.choice(ALPHABET) for _ in range(length))


def new_id(prefix: str, randomness: Randomness) -> str:
    return f"{prefix}_{randomness.base62(_RANDOM_CHARACTERS)}"


def is_id(text: str, prefix: str) -> bool:
    """Return whether the text has the format of our ids; a malformed one need not be looked up."""
    return text.startswith(f"{prefix}_") and _ID.fullmatch(text) is not None
