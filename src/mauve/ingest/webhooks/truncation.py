"""Truncate texts that customers wrote.

A truncated text ends in a mark and leaves a fingerprint of the original: its length and 64 bits of its hash.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

MARK: Final = "#truncated#"
CHARACTERS_MAX: Final = 1024
_TEXTS_MAX: Final = 64
_NAME_CHARACTERS_MAX: Final = 128
_DEPTH_MAX: Final = 3
_HASH_BYTES: Final = 8
_STEPS_BACK_MAX: Final = 64
_JOINER: Final = "\u200d"
_JOINED: Final = frozenset([_JOINER, *map(chr, range(0x1F3FB, 0x1F400))])  # and skin tones


class TruncatedTexts(NamedTuple):
    texts: dict[str, str]  # by path, such as `customer.name`
    fingerprints: dict[str, dict[str, object]]  # of the texts that were truncated


def truncate_texts(fields: Mapping[str, Any]) -> TruncatedTexts:
    """Return the texts among the fields, by path, each within the limit."""
    kept = TruncatedTexts({}, {})
    for name, text in _leaves(fields):
        kept.texts[name] = text
        if len(text) > CHARACTERS_MAX:
            kept.texts[name] = truncated(text)
            kept.fingerprints[name] = fingerprint(text)
        if len(kept.texts) == _TEXTS_MAX:
            break
    return kept


def truncated(text: str) -> str:
    """Return the beginning of the text, cut between visible characters, and the mark."""
    end = CHARACTERS_MAX - len(MARK)
    for cut in range(end, end - _STEPS_BACK_MAX, -1):
        if not _splits_a_character(text, cut):
            return text[:cut] + MARK
    return text[:end] + MARK


def fingerprint(text: str) -> dict[str, object]:
    encoded = text.encode()
    return {
        "chars": len(text),
        "utf8_bytes": len(encoded),
        "sha256_64": hashlib.sha256(encoded).digest()[:_HASH_BYTES].hex(),
    }


def _splits_a_character(text: str, cut: int) -> bool:
    """Return whether a cut would separate an accent from its letter, or split a joined emoji."""
    following = text[cut]
    return following in _JOINED or text[cut - 1] == _JOINER or unicodedata.category(following).startswith("M")


def _leaves(fields: Mapping[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        full = path + name
        if len(full) > _NAME_CHARACTERS_MAX:
            continue
        if isinstance(value, str) and value:
            yield full, value
        elif isinstance(value, dict) and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{full}.", depth + 1)
