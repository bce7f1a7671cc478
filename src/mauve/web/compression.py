"""Decompress requests within bounds, since a thousand bytes can hold a million, and compress responses."""

import gzip
import io
import re
import zlib
from collections.abc import Generator
from contextlib import closing
from typing import Final

import zstandard

from mauve.core.problems import Code, Problem

GZIP_BYTES_MIN: Final = 1024  # Smaller responses are not worth compressing.
_GZIP_LEVEL: Final = 5
_GZIP_ACCEPTED: Final = re.compile(r"(?:^|,)\s*gzip\s*(?:;\s*q=(?:1|0\.0*[1-9])[0-9.]*\s*)?(?:,|$)", re.IGNORECASE)
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_MEMBERS_MAX: Final = 16  # Each costs a copy of all that follow: tens of thousands would cost seconds.
_ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024


def gzipped(body: bytes, accept_encoding: str) -> bytes | None:
    """Return the body with gzip; None if the client does not accept that."""
    return gzip.compress(body, _GZIP_LEVEL, mtime=0) if accepts_gzip(accept_encoding) else None


def accepts_gzip(accept_encoding: str) -> bool:
    return _GZIP_ACCEPTED.search(accept_encoding) is not None


def gzipped_pieces(pieces: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """Compress a content that comes in pieces; each yields one."""
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    with closing(pieces):
        for piece in pieces:
            yield compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()


def inflated(body: bytes, encoding: str | None, bytes_max: int) -> bytes:
    """Return the decompressed body; raise if it is too large or not valid in its encoding."""
    if not encoding:
        return body
    match encoding.strip().lower():
        case "identity" | "":
            return body
        case "gzip" | "x-gzip":
            content = _gunzipped(body, bytes_max)
        case "zstd":
            content = _unzstd(body, bytes_max)
        case _:
            raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip, zstd or identity")
    if len(content) > bytes_max:
        raise too_large(bytes_max)
    return content


def too_large(bytes_max: int) -> Problem:
    return Problem(Code.TOO_LARGE, f"the body is over {bytes_max} bytes: send less at once")


def _gunzipped(body: bytes, bytes_max: int) -> bytes:
    content = b""
    rest = body
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            content += member.decompress(rest, bytes_max + 1 - len(content))
        except zlib.error:
            raise _not("gzip") from None
        if not member.eof and len(content) <= bytes_max:
            raise _not("gzip")
        rest = member.unused_data
        if not rest or len(content) > bytes_max:
            return content
    raise Problem(Code.MALFORMED, f"the body is in more than {_GZIP_MEMBERS_MAX} gzip members: compress it as one")


def _unzstd(body: bytes, bytes_max: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with decompressor.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
            content = reader.read(bytes_max + 1)
    except zstandard.ZstdError:
        raise _not("zstd") from None
    if not content:
        raise _not("zstd")
    return content


def _not(encoding: str) -> Problem:
    return Problem(Code.MALFORMED, f"the body is not valid {encoding}, although Content-Encoding says so")
