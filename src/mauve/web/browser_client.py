"""`/mauve.js`: the client for web pages, served wherever events are accepted.

Its plain name is cached briefly. The name with a hash of its content never changes, so browsers may cache it forever. A
name with another hash belongs to another version of the service: it answers the file of this one, cached briefly, so
that pages keep working after an upgrade, and between machines during one.

The file is served without its indentation, its comment lines, and the spaces and line ends that nothing needs. No other
step shortens it, so it must stay small enough to be read.
"""

import gzip
import hashlib
import re
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

from mauve.web.compression import accepts_gzip
from mauve.web.envelopes import is_safe_method, wrong_method
from mauve.web.messages import OpenRequest, Reply

_SOURCE: Final = Path(__file__).parent / "static" / "mauve.js"
_HASH_CHARACTERS: Final = 12
_NOT_MODIFIED_HEADERS: Final = ("cache-control", "etag", "vary", "access-control-allow-origin")
_CONTINUED: Final = ("{", ",", ";", "(", "[", "=>")
# Literals as a whole, else punctuation with the spaces around it. A division has spaces, a regular expression has none.
_LITERAL_OR_SPACED: Final = re.compile(r"""("[^"]*"|`[^`]*`|/(?:\\.|[^/\\\s])+/)| *([=(){}\[\],:;?&|<>!]) *""")


def shortened(source: str) -> str:
    """Return JavaScript without comment lines and needless spaces and line ends. No literal may span lines."""
    lines = (line.strip() for line in source.splitlines())
    code = (line for line in lines if line and not line.startswith("//"))
    return "".join(_LITERAL_OR_SPACED.sub(r"\1\2", line) + _line_end(line) for line in code)


def _line_end(line: str) -> str:
    """Return what must follow a line: nothing if JavaScript continues there, unless a comment would continue too."""
    return "" if line.endswith(_CONTINUED) and " //" not in line else "\n"


_CONTENT: Final = shortened(_SOURCE.read_text("utf-8")).encode()
_DIGEST: Final = hashlib.sha256(_CONTENT).hexdigest()[:_HASH_CHARACTERS]
_PATH: Final = re.compile(rf"/mauve(\.[0-9a-f]{{{_HASH_CHARACTERS}}})?\.js")

HASHED_PATH: Final = f"/mauve.{_DIGEST}.js"


def is_browser_client_path(path: str) -> bool:
    return path.startswith("/mauve.") and _PATH.fullmatch(path) is not None


def browser_client_reply(request: OpenRequest) -> Reply:
    """Return the file, or 304 if the client has it."""
    if not is_safe_method(request.method):
        return wrong_method("GET")
    is_gzipped = accepts_gzip(request.header("accept-encoding") or "")
    reply = _reply(is_pinned=request.path == HASHED_PATH, is_gzipped=is_gzipped)
    known = {tag.strip().removeprefix("W/") for tag in (request.header("if-none-match") or "").split(",")}
    if known & {reply.headers["etag"], "*"}:
        return Reply(HTTPStatus.NOT_MODIFIED, b"", {name: reply.headers[name] for name in _NOT_MODIFIED_HEADERS})
    return reply


@cache
def _reply(*, is_pinned: bool, is_gzipped: bool) -> Reply:
    headers = {
        "content-type": "text/javascript; charset=utf-8",
        "cache-control": "public, max-age=31536000, immutable" if is_pinned else "public, max-age=300",
        "etag": f'"{_DIGEST}{"-gzip" if is_gzipped else ""}"',
        "vary": "accept-encoding",
        "access-control-allow-origin": "*",
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
    }
    if not is_gzipped:
        return Reply(HTTPStatus.OK, _CONTENT, headers)
    return Reply(HTTPStatus.OK, gzip.compress(_CONTENT, 9, mtime=0), {**headers, "content-encoding": "gzip"})
