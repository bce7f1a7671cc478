"""A notice in the format of Slack's incoming webhooks, which Mattermost and others also accept."""

from typing import Any, Final

import msgspec

from mauve.alerts.channels.wording import by_app, fitted, sentence_of
from mauve.alerts.notice import Fact, Notice

_HEADER_CHARACTERS_MAX: Final = 150
_TEXT_CHARACTERS_MAX: Final = 3000
_LINE_CHARACTERS_MAX: Final = 300
_BLOCKS_MAX: Final = 50
_ZERO_WIDTH_SPACE: Final = "\u200b"
# Slack reads mentions and links from angle brackets; other programs read @channel from plain text.
_ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": f"@{_ZERO_WIDTH_SPACE}"}


def body_of(notice: Notice) -> bytes:
    apps = by_app(notice.facts)
    head = [_header(notice.title), _section(_escaped(notice.reason, _TEXT_CHARACTERS_MAX))]
    room = _BLOCKS_MAX - len(head) - 1
    shown = dict(list(apps.items())[:room])
    foot = _link(notice.link, f"Open {_more(len(apps) - len(shown))}in Mauve") + " · " + _escaped(notice.sent_for)
    message = {
        "text": _escaped(f"{notice.title}: {notice.reason}", _TEXT_CHARACTERS_MAX),
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            *head,
            *(_section(_app_text(app, facts)) for app, facts in shown.items()),
            {"type": "context", "elements": [_markup(foot)]},
        ],
    }
    return msgspec.json.encode(message)


def _app_text(app: str, facts: list[Fact]) -> str:
    """Return an app's facts, as many lines of them as fit."""
    text = f"*{_escaped(app)}*" if app else ""
    for fact in facts:
        line = _escaped(sentence_of(fact))
        if fact.link is not None:
            line = _link(fact.link, line)
        if len(text) + len(line) + 3 > _TEXT_CHARACTERS_MAX:
            return f"{text}\n…"
        text = f"{text}\n{line}".lstrip("\n")
    return text


def _header(title: str) -> dict[str, Any]:
    text = fitted(title, _HEADER_CHARACTERS_MAX, lambda each: _ESCAPED["@"] if each == "@" else each) or "…"
    return {"type": "header", "text": {"type": "plain_text", "text": text, "emoji": False}}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _markup(text or "…")}


def _markup(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _link(address: str, text: str) -> str:
    is_safe = len(address) <= _TEXT_CHARACTERS_MAX // 4 and not any(each in "<>|" or each.isspace() for each in address)
    return f"<{address.replace('&', '&amp;')}|{text}>" if is_safe else text


def _more(apps: int) -> str:
    return f"{apps} more {'app' if apps == 1 else 'apps'} " if apps else ""


def _escaped(text: str, characters_max: int = _LINE_CHARACTERS_MAX) -> str:
    return fitted(text, characters_max, lambda each: _ESCAPED.get(each, each))
