"""The head of a request, and a cache of recent heads."""

from typing import Final
from urllib.parse import unquote

from httptools import HttpParserInvalidURLError, parse_url

from mauve.web.body import declared_size

CACHED_HEADS_MAX: Final = 512
CACHED_HEAD_BYTES_MAX: Final = 2048  # Longer heads are parsed each time.
PREREAD_BYTES_MAX: Final = 64 * 1024  # Read so much of a body before the plane asks for it.

Headers = dict[bytes, list[bytes]]  # by lowercase name


class Head:
    """Everything before the body. Immutable: requests share it."""

    __slots__ = ("_headers", "_values", "declared_bytes", "expects_continue", "keeps_alive", "method", "path", "query")

    def __init__(self, method: bytes, url: bytes, headers: Headers, *, keeps_alive: bool) -> None:
        self.method = method.decode()
        self.path = path_of(url)
        self.query = url.partition(b"#")[0].partition(b"?")[2]
        self._values = headers
        self._headers: dict[str, str | None] = {}  # decoded on first use
        self.keeps_alive = keeps_alive
        self.declared_bytes = declared_size(self.header("content-length"))
        self.expects_continue = b"expect" in headers and (self.header("expect") or "").lower() == "100-continue"

    def header(self, name: str) -> str | None:
        try:
            return self._headers[name]
        except KeyError:
            values = self._values.get(name.encode())
            value = None if values is None else b", ".join(values).decode("latin-1")
            self._headers[name] = value
            return value

    def header_values(self, name: str) -> list[str]:
        return [value.decode("latin-1") for value in self._values.get(name.encode(), ())]


class HeadCache:
    """Parsed heads by their bytes. A client that reuses a connection repeats its head byte for byte."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self.get = self._heads.get

    def __len__(self) -> int:
        return len(self._heads)

    def add(self, text: bytes, head: Head) -> None:
        """Cache a head if its body is small and of declared length, and the connection stays open after it."""
        is_small = head.declared_bytes is not None and head.declared_bytes <= PREREAD_BYTES_MAX
        if len(text) > CACHED_HEAD_BYTES_MAX or not is_small or not head.keeps_alive or head.expects_continue:
            return
        if len(self._heads) >= CACHED_HEADS_MAX:
            self._heads.clear()
        self._heads[text] = head


def path_of(url: bytes) -> str:
    """Return the decoded path. Leave a path with an escaped slash as it is, so that it matches no route."""
    if not url.startswith(b"/"):
        try:
            url = parse_url(url).path or b"/"
        except HttpParserInvalidURLError:  # `*`, or an address without a scheme
            return url.decode("latin-1")
    path = url.partition(b"?")[0].partition(b"#")[0].decode("latin-1")
    return unquote(path, errors="replace") if "%" in path and "%2f" not in path.lower() else path
