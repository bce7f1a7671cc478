"""Reading named parts of a JSON document, at a bounded cost.

A correct signature does not make a friendly sender. A body of 4 MB can hold a number of four million digits, or two
million lists, and decoding those takes seconds. So a document is walked, not decoded: msgspec skips to the fields
that a shape names, and only those are decoded, each within a bound of its own. No step holds the interpreter for
long, so that a large document can be read in a thread while the event loop goes on. A walk over two million nested
lists would, and there is one for each level that is read: so what a walk stops at is counted first, piece by piece.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

LEAF_BYTES_MAX: Final = 2 * 1024
NUMBER_BYTES_MAX: Final = 32
NESTED_TEXT_BYTES_MAX: Final = 64 * 1024
MARKS_MAX: Final = 400_000  # brackets, commas and quotes in a document; those of the billers hold some thousands
_CHUNK_BYTES: Final = 256 * 1024
_CHUNK_CHARACTERS: Final = 16 * 1024
_ABSENT: Final = Raw()
_DIGITS: Final = frozenset(b"-0123456789")

# How half of a character is hidden from msgspec, which refuses a whole document because of one: as an escaped slash and
# a byte that is in no text and that msgspec passes over. Behind another backslash it is as valid as what it hides.
_MARK: Final = b"\xff"
_HIDDEN: Final = b"\\/" + _MARK
_HALF: Final = re.compile("[\ud800-\udfff]")


class TooLong(msgspec.Struct, frozen=True):
    """Stands for a value that was not decoded. No rule takes it for a text, a number or an object."""

    bytes: int


class BoundError(ValueError):
    """The document holds too many values to be read."""


Decode = Callable[[Raw], Any]
"""Decodes the whole of a value, which is known to be short enough."""


class Part(Protocol):
    """What is read of a value, and how."""

    def read(self, raw: Raw, decode: Decode) -> Any: ...  # noqa: ANN401 - whatever JSON may hold


class Leaf:
    """A number, a word, a flag: small, or not decoded at all."""

    def read(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - whatever JSON may hold
        size = len(raw)
        if size > NUMBER_BYTES_MAX and (size > LEAF_BYTES_MAX or _first_byte(raw) in _DIGITS):
            return TooLong(size)
        return decode(raw)


class Text:
    """What somebody wrote, of any length; or some texts in an object. A large object is one text: its JSON."""

    def read(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - whatever JSON may hold
        if _first_byte(raw) == ord('"') or len(raw) <= NESTED_TEXT_BYTES_MAX:
            return decode(raw)
        return _text_of(bytes(raw)) if _first_byte(raw) in b"{[" else TooLong(len(raw))


class Unread:
    """A value that is kept as it came, to be read later."""

    def read(self, raw: Raw, decode: Decode) -> "Document":
        return Document(raw, decode)


class Fields:
    """An object of which some fields are read. Anything else in its place is read like a leaf."""

    def __init__(self, **parts: Part) -> None:
        self._parts = parts
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Found", [(name, Raw, _ABSENT) for name in parts]))

    def read(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - whatever JSON may hold
        if _first_byte(raw) != ord("{"):
            return LEAF.read(raw, decode)
        values = astuple(self._decoder.decode(raw))
        parts = self._parts.items()
        return {name: part.read(value, decode) for (name, part), value in zip(parts, values, strict=True) if value}


class Items:
    """An array of few items. One that has more is not decoded, and neither is anything else in its place."""

    def __init__(self, part: Part, count_max: int) -> None:
        self._part = part
        # Unlike that of a list, the length of such an array is bounded while it is decoded.
        items = [(f"item_{number}", Raw, _ABSENT) for number in range(count_max)]
        shape = msgspec.defstruct("Found", items, array_like=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(shape)

    def read(self, raw: Raw, decode: Decode) -> Any:  # noqa: ANN401 - whatever JSON may hold
        if _first_byte(raw) != ord("["):
            return LEAF.read(raw, decode)
        try:
            values = astuple(self._decoder.decode(raw))
        except msgspec.ValidationError:
            return TooLong(len(raw))
        return [self._part.read(value, decode) for value in takewhile(bool, values)]


LEAF: Final = Leaf()
TEXT: Final = Text()
UNREAD: Final = Unread()


class Document:
    """A JSON document that is known to be one, and of which nothing is decoded yet."""

    __slots__ = ("_decode", "raw")

    def __init__(self, raw: Raw, decode: Decode) -> None:
        self.raw = raw
        self._decode = decode

    def read(self, part: Part) -> Any:  # noqa: ANN401 - whatever JSON may hold
        return part.read(self.raw, self._decode)


def document_in(body: bytes) -> Document:
    """Return the document, or raise what is wrong: `DecodeError`, `RecursionError` or `BoundError`."""
    _check_marks(body)
    try:
        return Document(_DOCUMENT.decode(body), _decoded)
    except msgspec.DecodeError:
        if b"\\ud" not in body.lower():
            raise
    return Document(_DOCUMENT.decode(_with_halves_hidden(body)), _decoded_with_halves)


_DOCUMENT: Final = msgspec.json.Decoder(Raw)
_ANYTHING: Final = msgspec.json.Decoder()


def _check_marks(body: bytes) -> None:
    """Refuse a document that takes long to walk over. What stands within a text does not count."""
    if len(body) <= MARKS_MAX:
        return
    marks, inside = 0, 0
    for piece in _without_escapes(body):
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2])
        marks += outside.count(b"[") + outside.count(b"{") + outside.count(b",") + len(parts) - 1
        if marks > MARKS_MAX:
            raise BoundError
        inside = (inside + len(parts) - 1) % 2


def _without_escapes(body: bytes) -> Iterator[bytes]:
    """Return the document in pieces, in which every quote begins or ends a string."""
    start = 0
    while start < len(body):
        piece = body[start : start + _CHUNK_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes % 2:  # The last one belongs to the byte behind it.
            piece = body[start : start + _CHUNK_BYTES + 1]
        start += len(piece)
        yield piece.replace(b"\\\\", b"").replace(b'\\"', b"")


def _whole(digits: str) -> int | TooLong:
    return int(digits) if len(digits) <= NUMBER_BYTES_MAX else TooLong(len(digits))


# What msgspec has walked over is JSON; nothing is left to be strict about.
_LOOSE: Final = json.JSONDecoder(parse_int=_whole, strict=False)


def _first_byte(raw: Raw) -> int:
    return memoryview(raw)[0]


def _decoded(raw: Raw) -> Any:  # noqa: ANN401 - whatever JSON may hold
    # msgspec is quicker, except that some floats cost it 25 us each. Of bytes that are no text it reads nothing.
    if _first_byte(raw) in b'"tfn':
        try:
            return _ANYTHING.decode(raw)
        except UnicodeDecodeError:
            pass
    return _LOOSE.decode(_text_of(bytes(raw)))


def _decoded_with_halves(raw: Raw) -> Any:  # noqa: ANN401 - whatever JSON may hold
    return _without_halves(_LOOSE.decode(_text_of(bytes(raw).replace(_HIDDEN, b"\\u"))))


def _with_halves_hidden(body: bytes) -> bytes:
    """Return the document with no escaped surrogate in it, single or in a pair."""
    return body.replace(_MARK, b"\xfe").replace(b"\\ud", _HIDDEN + b"d").replace(b"\\uD", _HIDDEN + b"D")


def _without_halves(value: Any) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Put U+FFFD for half a character: what somebody's name lacks should not cost a payment."""
    match value:
        case str():
            pieces = (value[at : at + _CHUNK_CHARACTERS] for at in range(0, len(value), _CHUNK_CHARACTERS))
            return "".join(_HALF.sub("\ufffd", piece) for piece in pieces)
        case list():
            return [_without_halves(each) for each in value]
        case dict():
            return {_without_halves(name): _without_halves(each) for name, each in value.items()}
        case _:
            return value


def _text_of(encoded: bytes) -> str:
    """Return the text, with U+FFFD for bytes that are none: piece by piece, for each of them takes its time."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = [decoder.decode(encoded[at : at + _CHUNK_BYTES]) for at in range(0, len(encoded), _CHUNK_BYTES)]
        return "".join([*pieces, decoder.decode(b"", final=True)])
