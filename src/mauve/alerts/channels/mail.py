"""A notice as an e-mail: plain text and HTML, with the headers that mail programs expect of automatic messages."""

from datetime import UTC, datetime
from email.headerregistry import Address, BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.policy import SMTP, Policy
from functools import cache
from pathlib import Path
from typing import Final

import jinja2

from mauve.alerts.channels.wording import by_app, fitted, one_line
from mauve.alerts.notice import Fact, Notice

_SUBJECT_CHARACTERS_MAX: Final = 200
_TEXT_CHARACTERS_MAX: Final = 200
_FACTS_MAX: Final = 500
_TEMPLATES: Final = Path(__file__).parent / "templates"


def message_of(notice: Notice, sender: Address, receiver: Address) -> EmailMessage:
    message = EmailMessage(_policy())
    message["Message-ID"] = f"<{notice.id}@{sender.domain}>"
    message["Date"] = _moment(notice)
    message["From"] = sender
    message["To"] = receiver
    message["Subject"] = fitted(notice.title, _SUBJECT_CHARACTERS_MAX)
    message["Auto-Submitted"] = "auto-generated"
    if notice.unsubscribe is not None:
        message["List-Unsubscribe"] = f"<{notice.unsubscribe}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(_rendered("mail.txt", notice))
    message.add_alternative(_rendered("mail.html", notice), subtype="html")
    return message


def _rendered(template: str, notice: Notice) -> str:
    shown = notice.facts[:_FACTS_MAX]
    return (
        _templates()
        .get_template(template)
        .render(
            notice=notice,
            apps=by_app(map(_on_one_line, shown)),
            left_out=len(notice.facts) - len(shown),
            sent_at=f"{_moment(notice):%-d %B %Y at %H:%M} UTC",
        )
    )


def _moment(notice: Notice) -> datetime:
    return datetime.fromtimestamp(notice.at // 1000, UTC)


def _on_one_line(fact: Fact) -> Fact:
    return Fact(
        app=_short(fact.app),
        label=_short(fact.label),
        value=_short(fact.value),
        before=None if fact.before is None else _short(fact.before),
        link=fact.link,
    )


def _short(text: str) -> str:
    return fitted(text, _TEXT_CHARACTERS_MAX)


class _UnfoldedHeader(UnstructuredHeader, BaseHeader):
    """A header on one line. The library folds a long address by encoding it, and mail programs then ignore it."""

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {self}{policy.linesep}"


@cache
def _policy() -> Policy:
    headers = HeaderRegistry()
    headers.map_to_type("list-unsubscribe", _UnfoldedHeader)
    return SMTP.clone(cte_type="7bit", header_factory=headers)


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["one_line"] = one_line
    return templates
