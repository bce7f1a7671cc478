"""A notice in the formats of Slack, Discord, and JSON for the owner's programs.

Names of apps may be hostile: text stays on one line, mentions no one, adds no markup, and keeps the receiver's limits.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mauve.alerts.channels import Fact, Notice
from mauve.core.times import utc_instant

# Control characters, line separators, halves of surrogate pairs, and characters that turn the direction of a line.
_UNSHOWN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SPACES: Final = re.compile(" {2,}")
_ELLIPSIS: Final = "…"  # also stands for empty text, which chats refuse
_NO_MENTION: Final = "@\N{ZERO WIDTH SPACE}"

_CHAT_FACTS_MAX: Final = 5  # An alert has one or two, without links. Digests go to members only.

_SLACK_HEADER_CHARACTERS_MAX: Final = 150
_SLACK_TEXT_CHARACTERS_MAX: Final = 3000
_SLACK_LINE_CHARACTERS_MAX: Final = 300
# Slack reads mentions and links from angle brackets; other programs read @channel from plain text.
_SLACK_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": _NO_MENTION}

# Discord allows 1024 characters in a field, and 6000 in all texts together.
_DISCORD_NAME_CHARACTERS_MAX: Final = 256
_DISCORD_DESCRIPTION_CHARACTERS_MAX: Final = 2000
_DISCORD_LINE_CHARACTERS_MAX: Final = 200
_DISCORD_ESCAPES: Final = {"@": _NO_MENTION} | {each: f"\\{each}" for each in "\\*_~`|>[]()#<:-"}
_MAUVE: Final = 0x7B3F91


def one_line(text: str) -> str:
    """Return the text on one line, without characters that end a header or hide what follows.

    Spaces that do not break stay: they hold the digits of a number together.
    """
    return _SPACES.sub(" ", _UNSHOWN.sub(" ", text)).strip()


def fitted(text: str, characters_max: int, escape: Callable[[str], str] = str) -> str:
    """Return the text on one line, escaped, and no longer than allowed. Never cut through an escaped character."""
    escaped = [escape(character) for character in one_line(text)]
    if sum(map(len, escaped)) <= characters_max:
        return "".join(escaped)
    kept, left = "", characters_max - len(_ELLIPSIS)
    for part in escaped:
        if len(part) > left:
            break
        kept, left = kept + part, left - len(part)
    return kept.rstrip() + _ELLIPSIS


def by_app(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Return the facts of each app, in the order in which the apps first appear."""
    grouped: dict[str, list[Fact]] = {}
    for fact in facts:
        grouped.setdefault(fact.app, []).append(fact)
    return grouped


def _sentence(fact: Fact) -> str:
    """Return a fact as plain text, such as `Revenue: €12 (before: €9)`."""
    return f"{fact.label}: {fact.value}" + ("" if fact.before is None else f" (before: {fact.before})")


def json_body(notice: Notice) -> bytes:
    data = {
        "id": notice.id,
        "title": notice.title,
        "reason": notice.reason,
        "organization": notice.sent_for,
        "link": notice.link,
        "facts": [fact._asdict() for fact in notice.facts],
    }
    return msgspec.json.encode({"type": f"alert.{notice.kind}", "timestamp": utc_instant(notice.at), "data": data})


def slack_body(notice: Notice) -> bytes:
    """Return the body for Slack's incoming webhooks, which Mattermost and others also accept."""
    title = fitted(notice.title, _SLACK_HEADER_CHARACTERS_MAX, lambda each: _NO_MENTION if each == "@" else each)
    foot = f"{_slack_link(notice.link, 'Open in Mauve')} · {_slack_text(notice.sent_for)}"
    message = {
        "text": _slack_text(f"{notice.title}: {notice.reason}", _SLACK_TEXT_CHARACTERS_MAX),
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": title or _ELLIPSIS, "emoji": False}},
            _slack_section(_slack_text(notice.reason, _SLACK_TEXT_CHARACTERS_MAX) or _ELLIPSIS),
            *(_slack_section(_slack_app(*each)) for each in by_app(notice.facts[:_CHAT_FACTS_MAX]).items()),
            {"type": "context", "elements": [_slack_markup(foot)]},
        ],
    }
    return msgspec.json.encode(message)


def _slack_app(app: str, facts: Iterable[Fact]) -> str:
    head = [f"*{_slack_text(app)}*"] if app else []
    return "\n".join(head + [_slack_text(_sentence(fact)) for fact in facts])


def _slack_section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _slack_markup(text)}


def _slack_markup(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _slack_link(address: str, text: str) -> str:
    is_short = len(address) <= _SLACK_TEXT_CHARACTERS_MAX // 4
    is_safe = is_short and not any(each in "<>|" or each.isspace() for each in address)
    return f"<{address.replace('&', '&amp;')}|{text}>" if is_safe else text


def _slack_text(text: str, characters_max: int = _SLACK_LINE_CHARACTERS_MAX) -> str:
    return fitted(text, characters_max, lambda each: _SLACK_ESCAPES.get(each, each))


def discord_body(notice: Notice) -> bytes:
    """Return the body for Discord's webhooks: one embed with a field for each app."""
    embed = {
        "title": _discord_text(notice.title, _DISCORD_NAME_CHARACTERS_MAX) or _ELLIPSIS,
        "url": notice.link,
        "description": _discord_text(notice.reason, _DISCORD_DESCRIPTION_CHARACTERS_MAX),
        "color": _MAUVE,
        "timestamp": utc_instant(notice.at),
        "footer": {"text": fitted(notice.sent_for, _DISCORD_NAME_CHARACTERS_MAX)},
        "fields": [_discord_field(*each) for each in by_app(notice.facts[:_CHAT_FACTS_MAX]).items()],
    }
    return msgspec.json.encode({"embeds": [embed], "allowed_mentions": {"parse": []}})


def _discord_field(app: str, facts: Iterable[Fact]) -> dict[str, str]:
    lines = [_discord_text(_sentence(fact), _DISCORD_LINE_CHARACTERS_MAX) for fact in facts]
    return {"name": _discord_text(app, _DISCORD_NAME_CHARACTERS_MAX) or _ELLIPSIS, "value": "\n".join(lines)}


def _discord_text(text: str, characters_max: int) -> str:
    return fitted(text, characters_max, lambda each: _DISCORD_ESCAPES.get(each, each))


BODIES: Final[Mapping[str, Callable[[Notice], bytes]]] = {
    "slack": slack_body,
    "discord": discord_body,
    "webhook": json_body,
}
CHANNEL_KINDS: Final = tuple(BODIES)
