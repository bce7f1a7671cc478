"""Style sheets, scripts and icons: named after their content, so that browsers may keep them for good."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

from mauve.core.problems import not_found
from mauve.web.messages import Reply

_FOLDER: Final = Path(__file__).parent / "static"
_PREFIX: Final = "/static/"
_HASH_CHARACTERS: Final = 12
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Assets:
    """What is served, read once when the process starts."""

    urls: Mapping[str, str]  # by the file's own name
    replies: Mapping[str, Reply]  # by the address


def asset_url(name: str) -> str:
    return assets().urls[name]


def is_asset_path(path: str) -> bool:
    return path.startswith(_PREFIX)


def asset_reply(path: str) -> Reply:
    reply = assets().replies.get(path)
    if reply is None:
        raise not_found()
    return reply


@cache
def assets() -> Assets:
    files = [path for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES]
    urls = {path.name: _url(path) for path in files}
    return Assets(urls, {urls[path.name]: _reply(path) for path in files})


def _url(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:_HASH_CHARACTERS]
    return f"{_PREFIX}{path.stem}.{digest}{path.suffix}"


def _reply(path: Path) -> Reply:
    headers = {
        "content-type": _TYPES[path.suffix],
        "cache-control": "public, max-age=31536000, immutable",
        "x-content-type-options": "nosniff",
    }
    return Reply(HTTPStatus.OK, path.read_bytes(), headers)
