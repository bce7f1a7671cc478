"""Read named fields of a JSON document at a bounded cost.

A valid signature does not prove good intent. A body of 4 MB can hold a number of four million digits, or two million
lists, and decoding those takes seconds. So a document is walked, not decoded: msgspec skips to the fields that a
shape names, and only those are decoded, each within its own limit. No step holds the interpreter for long, so that a
thread can read a large document while the event loop runs. A walk over two million nested lists would hold it, once
for each level that is read: so the tokens of a document are counted first, chunk by chunk.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

LEAF_BYTES_MAX: Final = 2 * 1024
NUMBER_BYTES_MAX: Final = 32
NESTED_TEXT_BYTES_MAX: Final = 64 * 1024
TOKENS_MAX: Final = 400_000  # brackets, commas and quotes in a document; the billers' hold a few thousand
_CHUNK_BYTES: Final = 256 * 1024
_CHUNK_CHARACTERS: Final = 16 * 1024
_ABSENT: Final = Raw()
_DIGITS: Final = frozenset(b"-0123456789")

# msgspec refuses a whole document because of one lone surrogate. So escaped surrogates are hidden from it as an escaped
# slash and a byte that occurs in no text, which msgspec skips. After another backslash this stays valid JSON.
_MARKER: Final = b"\xff"
_HIDDEN: Final = b"\\/" + _MARKER
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class TooLong(msgspec.Struct, frozen=True):
    """A value that was too long to decode. No rule accepts it as a text, a number or an object."""

    bytes: int


class BoundError(ValueError):
    """The document holds too many values."""


Decode = Callable[[Raw], Any]
"""Decodes a complete value that is known to be short enough."""


Shape = Callable[[Raw, Decode], Any]
"""Reads the wanted parts of a value. `Document` itself is one: it keeps the value unread, to be read later."""


def leaf(raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - any JSON value
    """Read a number, a word or a boolean: small, or not decoded at all."""
    size = len(raw)
    if size > NUMBER_BYTES_MAX and (size > LEAF_BYTES_MAX or _first_byte(raw) in _DIGITS):
        return TooLong(size)
    return decode(raw)


def texts(raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - any JSON value
    """Read a text of any length, or an object of texts. A large object is read as one text: its JSON."""
    if _first_byte(raw) == ord('"') or len(raw) <= NESTED_TEXT_BYTES_MAX:
        return decode(raw)
    return _text_of(bytes(raw)) if _first_byte(raw) in b"{[" else TooLong(len(raw))


class Fields:
    """An object of which the named fields are read. Anything else in its place is read as a leaf."""

    def __init__(self, **parts: Shape) -> None:
        self._parts = parts
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Found", [(name, Raw, _ABSENT) for name in parts]))

    def __call__(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - any JSON value
        if _first_byte(raw) != ord("{"):
            return leaf(raw, decode)
        values = astuple(self._decoder.decode(raw))
        parts = self._parts.items()
        return {name: part(value, decode) for (name, part), value in zip(parts, values, strict=True) if value}


class Items:
    """An array of at most `count_max` items. A longer one is not decoded; anything else is read as a leaf."""

    def __init__(self, part: Shape, count_max: int) -> None:
        self._part = part
        # Unlike a list, such an array is bounded in length while it is decoded.
        items = [(f"item_{number}", Raw, _ABSENT) for number in range(count_max)]
        shape = msgspec.defstruct("Found", items, array_like=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(shape)

    def __call__(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - any JSON value
        if _first_byte(raw) != ord("["):
            return leaf(raw, decode)
        try:
            values = astuple(self._decoder.decode(raw))
        except msgspec.ValidationError:
            return TooLong(len(raw))
        return [self._part(value, decode) for value in takewhile(bool, values)]


class Document:
    """A valid JSON document of which nothing is decoded yet."""

    __slots__ = ("_decode", "raw")

    def __init__(self, raw: Raw, decode: Decode) -> None:
        self.raw = raw
        self._decode = decode

    def read(self, part: Shape) -> Any:  # noqa: ANN401 - any JSON value
        return part(self.raw, self._decode)


def parse_document(body: bytes) -> Document:
    """Return the document, or raise `DecodeError`, `RecursionError` or `BoundError`."""
    _check_token_count(body)
    try:
        return Document(_DOCUMENT.decode(body), _decoded)
    except msgspec.DecodeError:
        if b"\\ud" not in body.lower():
            raise
    return Document(_DOCUMENT.decode(_with_surrogates_hidden(body)), _decoded_with_surrogates)


_DOCUMENT: Final = msgspec.json.Decoder(Raw)
_ANYTHING: Final = msgspec.json.Decoder()


def _check_token_count(body: bytes) -> None:
    """Refuse a document that takes long to walk. Characters inside strings do not count."""
    if len(body) <= TOKENS_MAX:
        return
    tokens, inside = 0, 0
    for piece in _without_escapes(body):
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2])
        tokens += outside.count(b"[") + outside.count(b"{") + outside.count(b",") + len(parts) - 1
        if tokens > TOKENS_MAX:
            raise BoundError
        inside = (inside + len(parts) - 1) % 2


def _without_escapes(body: bytes) -> Iterator[bytes]:
    """Yield the document in chunks in which every quote begins or ends a string."""
    start = 0
    while start < len(body):
        piece = body[start : start + _CHUNK_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes % 2:  # The last one escapes the byte after it.
            piece = body[start : start + _CHUNK_BYTES + 1]
        start += len(piece)
        yield piece.replace(b"\\\\", b"").replace(b'\\"', b"")


def _whole(digits: str) -> int | TooLong:
    return int(digits) if len(digits) <= NUMBER_BYTES_MAX else TooLong(len(digits))


# msgspec has already validated the JSON; this decoder need not be strict.
_LOOSE: Final = json.JSONDecoder(parse_int=_whole, strict=False)


def _first_byte(raw: Raw) -> int:
    return memoryview(raw)[0]


def _decoded(raw: Raw) -> Any:  # noqa: ANN401 - any JSON value
    # msgspec is faster, except that some floats cost it 25 us each. It cannot read invalid UTF-8.
    if _first_byte(raw) in b'"tfn':
        try:
            return _ANYTHING.decode(raw)
        except UnicodeDecodeError:
            pass
    return _LOOSE.decode(_text_of(bytes(raw)))


def _decoded_with_surrogates(raw: Raw) -> Any:  # noqa: ANN401 - any JSON value
    return _without_lone_surrogates(_LOOSE.decode(_text_of(bytes(raw).replace(_HIDDEN, b"\\u"))))


def _with_surrogates_hidden(body: bytes) -> bytes:
    """Hide every escaped surrogate in the document, lone or paired."""
    return body.replace(_MARKER, b"\xfe").replace(b"\\ud", _HIDDEN + b"d").replace(b"\\uD", _HIDDEN + b"D")


def _without_lone_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replace lone surrogates by U+FFFD: a broken name must not cost a payment."""
    match value:
        case str():
            pieces = (value[at : at + _CHUNK_CHARACTERS] for at in range(0, len(value), _CHUNK_CHARACTERS))
            return "".join(_SURROGATE.sub("\ufffd", piece) for piece in pieces)
        case list():
            return [_without_lone_surrogates(each) for each in value]
        case dict():
            return {_without_lone_surrogates(name): _without_lone_surrogates(each) for name, each in value.items()}
        case _:
            return value


def _text_of(encoded: bytes) -> str:
    """Decode UTF-8, with U+FFFD for invalid bytes: chunk by chunk, because each replacement is slow."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = [decoder.decode(encoded[at : at + _CHUNK_BYTES]) for at in range(0, len(encoded), _CHUNK_BYTES)]
        return "".join([*pieces, decoder.decode(b"", final=True)])
