"""Style sheets, scripts and icons. Their names contain a hash of their content, so browsers may cache them forever."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from mauve.core.problems import not_found

PREFIX: Final = "/static/"
_FOLDER: Final = Path(__file__).parent / "static"
_HASH_CHARACTERS: Final = 12
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Assets:
    """The files, read once when the process starts."""

    urls: Mapping[str, str]  # by the file's own name
    files: Mapping[str, Path]  # by URL
    contents: Mapping[str, bytes]  # by URL


def asset_url(name: str) -> str:
    return assets().urls[name]


def asset_response(url: str) -> Response:
    if url not in assets().files:
        raise not_found()
    headers = {
        "content-type": _TYPES[assets().files[url].suffix],
        "cache-control": "public, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Response(assets().contents[url], headers=headers)


@cache
def assets() -> Assets:
    paths = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
    contents = {path: path.read_bytes() for path in paths}
    files = {_url(path, content): path for path, content in contents.items()}
    return Assets({path.name: url for url, path in files.items()}, files, {u: contents[p] for u, p in files.items()})


def _url(path: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]
    return f"{PREFIX}{path.stem}.{digest}{path.suffix}"
