"""The reference as it is served: made once, kept as bytes."""

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec

from mauve.openapi.document import document
from mauve.openapi.page import content_policy, page
from mauve.openapi.service import HTML, REVALIDATED
from mauve.web import asgi
from mauve.web.envelopes import wrong_method
from mauve.web.messages import JSON, Reply

_READING: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class OpenApiApp:
    """An ASGI application with two replies, by path."""

    replies: dict[str, Reply]

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request = asgi.AsgiRequest(scope, receive)
        await asgi.send_reply(send, self.answer(request.method, request.path, request.header("if-none-match")))

    def serves(self, path: str) -> bool:
        return path in self.replies

    def answer(self, method: str, path: str, if_none_match: str | None) -> Reply:
        """Return the document or the page, or that the caller has it already."""
        if method not in _READING:
            return wrong_method("GET")
        reply = self.replies[path]
        if not _names(if_none_match, reply.headers["etag"]):
            return reply
        return Reply(304, headers={name: reply.headers[name] for name in ("etag", "cache-control")})


@cache
def reference() -> OpenApiApp:
    told = document()
    shown = page(told)
    return OpenApiApp(
        {
            "/openapi.json": _kept(msgspec.json.encode(told), JSON),
            "/docs": _kept(shown.encode(), {**HTML, "content-security-policy": content_policy()}),
        }
    )


def _kept(body: bytes, headers: dict[str, str]) -> Reply:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Reply(200, body, {**headers, **REVALIDATED, "etag": etag})


def _names(if_none_match: str | None, etag: str) -> bool:
    given = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
