"""An app, and the two environments its data lives in."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Environment(StrEnum):
    """Live data or test data. The two never mix."""

    LIVE = "live"
    TEST = "test"


class Ownership(StrEnum):
    """Who the app is run for."""

    MINE = "mine"
    CLIENT_OPERATED = "client_operated"


class AppType(StrEnum):
    """The kind of app."""

    SAAS = "saas"
    LIBRARY = "library"
    DESKTOP = "desktop"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class App:
    app_id: str
    org_id: str
    public_id: str
    test_public_id: str | None
    name: str
    ownership: Ownership
    type: AppType
    first_event_at: int | None
    has_biller_a_webhook: bool
    has_biller_b_webhook: bool
    created_at: int
    archived_at: int | None = None  # its keys and webhooks are refused since then; its data is kept

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None

    @property
    def projects(self) -> tuple[str, ...]:
        """Return the project of each environment that the app has."""
        return (self.public_id,) if self.test_public_id is None else (self.public_id, self.test_public_id)


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
