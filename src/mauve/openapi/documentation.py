"""The documentation site at `/docs/…`, if `make docs` has built it, and `/llms.txt`, a list of its pages for programs.

A wheel contains the site if it was built before. Without it, `/docs/…` does not exist, and `/llms.txt` names only what
is there. Each file is a route: a path that is not one of them is unknown, so no path reaches outside the folder.
"""

from functools import partial
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from mauve.openapi.service import REVALIDATED

_HERE: Final = Path(__file__).parent
_SITE: Final = _HERE / "site"
_TEXTS: Final = {".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8"}
_HEADERS: Final = {
    **REVALIDATED,
    "content-security-policy": (
        "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' blob:; style-src 'self' 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def has_site() -> bool:
    """Return whether the site was built, so that pages can link it."""
    return _SITE.is_dir()


def documentation_routes(site: Path = _SITE) -> list[Route]:
    """Return a route for every file of the site; none if it was not built."""
    if not site.is_dir():
        return []
    show = partial(_show, StaticFiles(directory=site))
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    return [Route(f"/docs/{name}", partial(show, name)) for name in names]


def overview_for_programs(site: Path = _SITE) -> bytes:
    """Return the text of `/llms.txt`, without links to pages that were not built."""
    text = (_HERE / "llms.txt").read_text("utf-8")
    if site.is_dir():
        return text.encode()
    kept = [line for line in text.splitlines() if "](/docs/" not in line]
    sections = "\n".join(kept).split("\n## ")
    return ("\n## ".join(part for part in sections if part.partition("\n")[2].strip()).rstrip() + "\n").encode()


async def _show(files: StaticFiles, name: str, request: Request) -> Response:
    response = await files.get_response(name, request.scope)
    response.headers.update(_HEADERS)
    if (text := _TEXTS.get(Path(name).suffix)) and "content-type" in response.headers:
        response.headers["content-type"] = text
    return response
