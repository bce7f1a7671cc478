"""A notice in the format of Discord's webhooks: one embed with a field for each app."""

import re
from typing import Any, Final

import msgspec

from mauve.alerts.channels.signed_json import moment_of
from mauve.alerts.channels.wording import by_app, fitted, sentence_of
from mauve.alerts.notice import Fact, Notice

_TITLE_CHARACTERS_MAX: Final = 256
_DESCRIPTION_CHARACTERS_MAX: Final = 2000  # Discord allows 4096, but 6000 for all texts together.
_FIELDS_MAX: Final = 25
_NAME_CHARACTERS_MAX: Final = 256
_VALUE_CHARACTERS_MAX: Final = 1024
_LINE_CHARACTERS_MAX: Final = 200
_ALL_CHARACTERS_MAX: Final = 6000
_MAUVE: Final = 0x7B3F91
_MARKUP: Final = re.compile(r"[\\*_~`|>\[\]()#<:-]")
_ZERO_WIDTH_SPACE: Final = "\u200b"
_NOTHING: Final = "…"  # Discord refuses empty text.


def body_of(notice: Notice) -> bytes:
    embed: dict[str, Any] = {
        "title": _escaped(notice.title, _TITLE_CHARACTERS_MAX) or _NOTHING,
        "url": notice.link,
        "description": _escaped(notice.reason, _DESCRIPTION_CHARACTERS_MAX),
        "color": _MAUVE,
        "timestamp": moment_of(notice),
        "footer": {"text": fitted(notice.sent_for, _NAME_CHARACTERS_MAX)},
    }
    used = len(embed["title"]) + len(embed["description"]) + len(embed["footer"]["text"])
    embed["fields"] = _fields(notice, _ALL_CHARACTERS_MAX - used)
    return msgspec.json.encode({"embeds": [embed], "allowed_mentions": {"parse": []}})


def _fields(notice: Notice, room: int) -> list[dict[str, str]]:
    """Return a field for each app, as many as fit; the last one then counts the others."""
    fields: list[dict[str, str]] = []
    apps = by_app(notice.facts)
    room -= 2 * _LINE_CHARACTERS_MAX  # for the last one
    for app, facts in apps.items():
        name, value = _escaped(app, _NAME_CHARACTERS_MAX) or _NOTHING, _lines(facts)
        room -= len(name) + len(value)
        if room < 0 or (len(fields) == _FIELDS_MAX - 1 and len(apps) > _FIELDS_MAX):
            return [*fields, {"name": _NOTHING, "value": f"{len(apps) - len(fields)} more: open the dashboard."}]
        fields.append({"name": name, "value": value})
    return fields


def _lines(facts: list[Fact]) -> str:
    text = ""
    for fact in facts:
        line = _escaped(sentence_of(fact), _LINE_CHARACTERS_MAX)
        if len(text) + len(line) + 3 > _VALUE_CHARACTERS_MAX:
            return f"{text}\n…"
        text = f"{text}\n{line}".lstrip("\n")
    return text or _NOTHING


def _escaped(text: str, characters_max: int) -> str:
    return fitted(text, characters_max, _escape)


def _escape(character: str) -> str:
    if character == "@":
        return f"@{_ZERO_WIDTH_SPACE}"
    return f"\\{character}" if _MARKUP.fullmatch(character) else character
