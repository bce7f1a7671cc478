"""Data-plane keys: format, digest and masked form.

A key is `sk_live_`, `pk_live_` or `sk_test_`, then 34 random characters and a checksum of 6. The checksum lets us
refuse a mistyped or invented key without a lookup.
"""

import hashlib
import re
import zlib
from typing import Final

from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.ids import ALPHABET, Randomness
from mauve.core.secret import Secret

_RANDOM_CHARACTERS: Final = 34
_CHECKSUM_CHARACTERS: Final = 6
_PREFIX_EXAMPLE: Final = "sk_live_"  # All prefixes are equally long.
_KEY: Final = re.compile(r"(?:sk_live_|pk_live_|sk_test_)[0-9A-Za-z]{40}", re.ASCII)


def mint(kind: KeyKind, environment: Environment, randomness: Randomness) -> Secret:
    text = f"{kind}_{environment}_{randomness.base62(_RANDOM_CHARACTERS)}"
    return Secret(text + _checksum(text))


def masked(key: str) -> str:
    """Return the displayable form of a key: prefix, four characters, an ellipsis, the last four."""
    return f"{key[: len(_PREFIX_EXAMPLE) + 4]}…{key[-4:]}"


def is_well_formed(credential: str) -> bool:
    if _KEY.fullmatch(credential) is None:
        return False
    return credential[-_CHECKSUM_CHARACTERS:] == _checksum(credential[:-_CHECKSUM_CHARACTERS])


def digest_of(credential: str) -> bytes:
    """Return the digest that is stored instead of the credential. With over 200 random bits it needs no slow hash."""
    return hashlib.sha256(credential.encode(errors="surrogatepass")).digest()


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode())
    digits = []
    for _ in range(_CHECKSUM_CHARACTERS):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
