"""How an app's name is normalized, and which names are refused."""

from typing import Final

APP_NAME_CHARACTERS_MAX: Final = 80
_LAYOUT_WHITESPACE: Final = frozenset("\t\n\v\f\r")
_CONTROL_CHARACTERS: Final = frozenset(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
_REFUSED: Final = _CONTROL_CHARACTERS - _LAYOUT_WHITESPACE


def app_name_from(text: str) -> str | None:
    """Return the normalized name: trimmed, inner whitespace collapsed; None if it cannot be a name."""
    if not _REFUSED.isdisjoint(text):
        return None
    name = " ".join(text.split())
    return name if 1 <= len(name) <= APP_NAME_CHARACTERS_MAX else None
