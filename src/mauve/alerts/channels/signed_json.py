"""A notice as JSON, signed by Standard Webhooks, for programs of the owner."""

import base64
from datetime import UTC, datetime
from typing import Final

import msgspec

from mauve.alerts.notice import Fact, Notice
from mauve.core.standard_webhooks import decoded_key, signature_of

_FACTS_MAX: Final = 1000


def body_of(notice: Notice) -> bytes:
    data = {
        "id": notice.id,
        "title": notice.title,
        "reason": notice.reason,
        "organization": notice.sent_for,
        "link": notice.link,
        "facts": [_fact(fact) for fact in notice.facts[:_FACTS_MAX]],
    }
    return msgspec.json.encode({"type": f"alert.{notice.kind}", "timestamp": moment_of(notice), "data": data})


def signature_headers(secret: str, notice: Notice, body: bytes, now_s: int) -> dict[str, str]:
    """Return the headers of one attempt: the id stays the same, the timestamp is that of the attempt."""
    signature = base64.b64encode(signature_of(decoded_key(secret), notice.id, str(now_s), body)).decode()
    return {"webhook-id": notice.id, "webhook-timestamp": str(now_s), "webhook-signature": f"v1,{signature}"}


def moment_of(notice: Notice) -> str:
    return datetime.fromtimestamp(notice.at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fact(fact: Fact) -> dict[str, str | None]:
    return fact._asdict()
