"""The routes of the reference: built once, kept as bytes. Only the address on the page depends on the request."""

import hashlib
from functools import cache, partial

import msgspec
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mauve.openapi.document import document
from mauve.openapi.documentation import documentation_routes, overview_for_programs
from mauve.openapi.page import URL_EXAMPLE, content_policy, page
from mauve.openapi.service import HTML, PLAIN, REVALIDATED
from mauve.web.app import joined_header, plain_url, response_from
from mauve.web.messages import JSON, Reply


def reference_routes(public_url: str | None) -> tuple[Route, ...]:
    """Return the routes; examples use the public address, or else the one that the client used."""
    _document(), _page()  # Built now: the first reader should not wait, and the event loop even less.
    return (
        Route("/openapi.json", _show_document),
        Route("/docs", partial(_show_page, public_url)),
        Route("/llms.txt", _show_overview),
        *documentation_routes(),
    )


@cache
def _document() -> Reply:
    return _with_etag(msgspec.json.encode(document()), JSON)


@cache
def _page() -> bytes:
    return page(document()).encode()


@cache
def _overview() -> Reply:
    return _with_etag(overview_for_programs(), PLAIN)


async def _show_overview(request: Request) -> Response:
    return _respond(_overview(), request)


async def _show_document(request: Request) -> Response:
    return _respond(_document(), request)


async def _show_page(public_url: str | None, request: Request) -> Response:
    url = public_url or plain_url(request) or URL_EXAMPLE
    body = _page().replace(URL_EXAMPLE.encode(), str(escape(url.rstrip("/"))).encode())
    return _respond(_with_etag(body, {**HTML, "content-security-policy": content_policy()}), request)


def _respond(reply: Reply, request: Request) -> Response:
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
