"""Style sheets, scripts and icons. Their names contain a hash of their content, so browsers may cache them forever."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

PREFIX: Final = "/static/"
_FOLDER: Final = Path(__file__).parent / "static"
_HASH_CHARACTERS: Final = 12
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    url: str
    content: bytes
    content_type: str


def asset_url(name: str) -> str:
    return _assets_by_name()[name].url


def asset_response(url: str) -> Response | None:
    asset = _assets_by_url().get(url)
    if asset is None:
        return None
    headers = {
        "content-type": asset.content_type,
        "cache-control": "public, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Response(asset.content, headers=headers)


@cache
def _assets_by_name() -> dict[str, Asset]:
    return {path.name: _asset(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


@cache
def _assets_by_url() -> dict[str, Asset]:
    return {asset.url: asset for asset in _assets_by_name().values()}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]
    return Asset(f"{PREFIX}{path.stem}.{digest}{path.suffix}", content, _TYPES[path.suffix])
