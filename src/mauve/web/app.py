"""What every Starlette application of the service shares: routing without redirects, bounded bodies, responses."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mauve.web.asgi import header
from mauve.web.body import BodyTooLargeError, IncompleteBodyError, read_body
from mauve.web.compression import GZIP_BYTES_MIN, gzipped
from mauve.web.messages import Reply

_PLAIN_HOST: Final = re.compile(r"[0-9A-Za-z.:\[\]-]{1,255}", re.ASCII)
_encode = msgspec.json.Encoder().encode


class JsonResponse(JSONResponse):
    """JSON encoded by msgspec, which knows our structs."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - anything that msgspec can encode
        return _encode(content)


def starlette_app(routes: Sequence[Route], unmatched: Callable[[Request, Exception], Awaitable[Response]]) -> Starlette:
    """Return an application that calls `unmatched` for unknown paths (404) and methods (405), and never redirects."""
    app = Starlette(routes=routes, exception_handlers={404: unmatched, 405: unmatched})
    app.router.redirect_slashes = False
    return app


def response_from(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers)


async def bounded_body(request: Request, bytes_max: int) -> bytes | None:
    """Return the body; None if it is larger, was cut off, or arrived too slowly."""
    try:
        return await read_body(request.stream(), bytes_max)
    except (BodyTooLargeError, IncompleteBodyError, ClientDisconnect):
        return None


def joined_header(request: Request, name: str) -> str | None:
    """Return a header's value; one that was sent twice is joined, and so matches no credential and no media type."""
    return header(request.scope, name.encode())


def plain_url(request: Request) -> str | None:
    """Return the address at which the client reaches the service; None if it would not be safe in HTML or a shell."""
    host = request.headers.get("host", "")
    return f"http://{host}" if _PLAIN_HOST.fullmatch(host) else None


def compressed(response: Response, accept_encoding: str) -> Response:
    """Return the response with gzip, if the client accepts that and it is worthwhile. A second call changes nothing."""
    if len(response.body) < GZIP_BYTES_MIN or "vary" in response.headers:
        return response
    headers = {**response.headers, "vary": "accept-encoding"}
    del headers["content-length"]
    body = gzipped(bytes(response.body), accept_encoding)
    if body is None:
        return Response(response.body, response.status_code, headers)
    return Response(body, response.status_code, {**headers, "content-encoding": "gzip"})
