"""The routes of the reference: built once, kept as bytes."""

import hashlib
from functools import cache, partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mauve.openapi.document import document
from mauve.openapi.page import content_policy, page
from mauve.openapi.service import HTML, REVALIDATED
from mauve.web.app import joined_header, response_from
from mauve.web.messages import JSON, Reply


@cache
def reference_routes() -> tuple[Route, ...]:
    described = document()
    shown = page(described)
    replies = {
        "/openapi.json": _with_etag(msgspec.json.encode(described), JSON),
        "/docs": _with_etag(shown.encode(), {**HTML, "content-security-policy": content_policy()}),
    }
    return tuple(Route(path, partial(_respond, reply)) for path, reply in replies.items())


async def _respond(reply: Reply, request: Request) -> Response:
    """Return the document, or 304 if the client already has it."""
    if not _names(joined_header(request, "if-none-match"), reply.headers["etag"]):
        return response_from(reply)
    return Response(status_code=304, headers={name: reply.headers[name] for name in ("etag", "cache-control")})


def _with_etag(body: bytes, headers: dict[str, str]) -> Reply:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Reply(200, body, {**headers, **REVALIDATED, "etag": etag})


def _names(if_none_match: str | None, etag: str) -> bool:
    given = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
