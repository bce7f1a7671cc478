"""The routes of the reference, `/llms.txt` and, if `make docs` has built it, the documentation site at `/docs/…`.

Each file of the site is a route: no path reaches outside its folder. Without the site, `/docs/…` does not exist, and
`/llms.txt` does not link its pages.
"""

import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from mauve.openapi.document import document
from mauve.openapi.examples import HTML, PLAIN, REVALIDATED
from mauve.openapi.page import URL_EXAMPLE, content_policy, page
from mauve.web.app import joined_header, plain_url, response_from
from mauve.web.messages import JSON, Reply

_HERE: Final = Path(__file__).parent
SITE: Final = _HERE / "site"
_SITE_TEXTS: Final = {".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8"}
_SITE_HEADERS: Final = {
    **REVALIDATED,
    "content-security-policy": (
        "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' blob:; style-src 'self' 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def reference_routes(public_url: str | None) -> tuple[Route, ...]:
    """Return the routes; examples use the public address, or else the one that the client used."""
    whole, html = _built()
    return (
        Route("/openapi.json", partial(_show, _with_etag(whole, JSON))),
        Route("/docs", partial(_show_page, html, public_url)),
        Route("/llms.txt", partial(_show, _with_etag(overview_for_programs(), PLAIN))),
        *documentation_routes(),
    )


@cache
def _built() -> tuple[bytes, bytes]:
    whole = document()
    return msgspec.json.encode(whole), page(whole).encode()


async def _show_page(html: bytes, public_url: str | None, request: Request) -> Response:
    url = public_url or plain_url(request) or URL_EXAMPLE
    body = html.replace(URL_EXAMPLE.encode(), str(escape(url.rstrip("/"))).encode())
    return await _show(_with_etag(body, {**HTML, "content-security-policy": content_policy()}), request)


async def _show(reply: Reply, request: Request) -> Response:
    """Return the reply, or 304 if the client already has it."""
    given = [part.strip().removeprefix("W/") for part in (joined_header(request, "if-none-match") or "").split(",")]
    if reply.headers["etag"] not in given and given != ["*"]:
        return response_from(reply)
    return Response(status_code=304, headers={name: reply.headers[name] for name in ("etag", "cache-control")})


def _with_etag(body: bytes, headers: dict[str, str]) -> Reply:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Reply(200, body, {**headers, **REVALIDATED, "etag": etag})


def has_site() -> bool:
    """Return whether the site was built, so that pages can link it."""
    return SITE.is_dir()


def documentation_routes(site: Path = SITE) -> list[Route]:
    """Return a route for every file of the site; none if it was not built."""
    if not site.is_dir():
        return []
    files = StaticFiles(directory=site)
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    return [Route(f"/docs/{name}", partial(_show_file, files, name)) for name in names]


def overview_for_programs(site: Path = SITE) -> bytes:
    """Return the text of `/llms.txt`, without links to pages that were not built."""
    text = (_HERE / "llms.txt").read_text("utf-8")
    if site.is_dir():
        return text.encode()
    kept = [line for line in text.splitlines() if "](/docs/" not in line]
    sections = "\n".join(kept).split("\n## ")
    return ("\n## ".join(part for part in sections if part.partition("\n")[2].strip()).rstrip() + "\n").encode()


async def _show_file(files: StaticFiles, name: str, request: Request) -> Response:
    response = await files.get_response(name, request.scope)
    response.headers.update(_SITE_HEADERS)
    if (text := _SITE_TEXTS.get(Path(name).suffix)) and "content-type" in response.headers:
        response.headers["content-type"] = text
    return response
