"""The body of a write as text: validate the JSON, split it into items, and check what only their text shows.

msgspec alone decides what is valid JSON. The standard library is used only where msgspec cannot help: for repeated
keys and for the size of an item as compact JSON.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from isal.isal_zlib import crc32
from msgspec import Raw

from mauve.core.events import is_object
from mauve.core.problems import Code, Fault, Problem, RejectionCode

ITEMS_MAX: Final = 500
ITEM_BYTES_MAX: Final = 120 * 1024
TOO_DEEP: Final = Fault(RejectionCode.TOO_DEEP, "the item is nested too deeply")
_LONE_SURROGATE: Final = Fault(
    RejectionCode.LONE_SURROGATE, "a string holds a lone surrogate, which is not a character"
)
_REPEATED_KEY: Final = Fault(RejectionCode.REPEATED_KEY, "no key may appear twice")

_RAW: Final = msgspec.json.Decoder(Raw)
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_ANYTHING: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()
_AT_BYTE: Final = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)")  # msgspec's message
_SCAN_ERRORS: Final = (msgspec.DecodeError, RecursionError)
_INT_DIGITS_MAX: Final = 4300  # the most that Python converts to an int

# An even run of backslashes is text; one more begins an escape. A high and a low surrogate together are one character.
_SURROGATES: Final = re.compile(
    rb"\\(?<!\\\\)((?:\\\\)*+)u(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[dD][89a-fA-F][0-9a-fA-F]{2})"
)


class Items(NamedTuple):
    """The items of a body, each as raw JSON."""

    text: bytes  # the body, with lone surrogates replaced; the items that held one are among the faults
    raws: list[Raw]
    faults: Mapping[int, Fault]  # by index: why an item is rejected for its text alone


def require_utf8(body: bytes) -> None:
    """Raise the 400 unless the body is UTF-8: msgspec does not validate the fields that it skips."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem(Code.MALFORMED, f"the body is not valid UTF-8 at byte {error.start}") from None


def split(body: bytes) -> Items:
    """Return the items of a JSON object or array, or raise the 400 or 413 for the whole body."""
    marker, text = b"", body
    try:
        raws = _scan(body)
    except _SCAN_ERRORS:
        marker = _marker_for(body)
        text = _without_lone_surrogates(body, marker)
        raws = _scan_or_refuse(text, body)
    if len(raws) > ITEMS_MAX:
        raise Problem(Code.TOO_LARGE, f"a request holds at most {ITEMS_MAX} items")
    return Items(text, raws, _surrogate_faults(raws, marker))


def repeated_key_fault(raw: Raw) -> Fault | None:
    """Return the fault of an item that repeats a key at the top level or in its `props`."""
    try:
        if not _may_repeat_key(raw):
            return None
        pairs = _PAIRS.decode(bytes(raw).decode())
    except RecursionError:
        return TOO_DEEP
    is_repeated = _is_repeated(pairs) or any(key == "props" and _is_repeated(value) for key, value in pairs)
    return _REPEATED_KEY if is_repeated else None


def _scan(body: bytes) -> list[Raw]:
    return [_RAW.decode(body)] if is_object(body) else _RAWS.decode(body)


def _scan_or_refuse(text: bytes, body: bytes) -> list[Raw]:
    try:
        return _scan(text)
    except RecursionError:
        raise Problem(Code.MALFORMED, "the body is nested too deeply") from None
    except msgspec.ValidationError:
        raise Problem(Code.MALFORMED, "the body must be a JSON object or an array of objects") from None
    except msgspec.DecodeError as error:
        raise Problem(Code.MALFORMED, f"the body is not valid JSON: {_complaint(str(error), text, body)}") from None


def _complaint(message: str, text: bytes, body: bytes) -> str:
    """Return msgspec's message, which never holds content, with the position as an editor shows it."""
    found = _AT_BYTE.fullmatch(message)
    if found is None:
        return "it ends too early" if body.strip() else "it is empty"
    if text != body:  # The position is that of another text.
        return found[1]
    before = body[: int(found[2])]
    line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
    return f"{found[1]} at line {line}, column {column} (byte {len(before)})"


def _marker_for(body: bytes) -> bytes:
    """Return a text that the body does not hold by chance, and that is not JSON outside a string."""
    return b"lone surrogate %08x" % crc32(body)


def _without_lone_surrogates(body: bytes, marker: bytes) -> bytes:
    """Replace each by the marker: msgspec refuses a whole body because of one."""
    return _SURROGATES.sub(lambda found: found[0] if found[2] else found[1] + marker, body)


def _surrogate_faults(raws: Sequence[Raw], marker: bytes) -> dict[int, Fault]:
    if not marker:
        return {}
    texts = b"\0".join(raws).split(b"\0")  # faster than one by one; JSON holds no NUL byte
    return {index: _LONE_SURROGATE for index, text in enumerate(texts) if marker in text}


def size_faults(raws: Sequence[Raw], body_bytes: int) -> dict[int, Fault]:
    """Return the faults of items that are too large, by index."""
    if body_bytes <= ITEM_BYTES_MAX:
        return {}
    oversized = ((index, _size_fault(raw)) for index, raw in enumerate(raws) if len(raw) > ITEM_BYTES_MAX)
    return {index: fault for index, fault in oversized if fault is not None}


def _size_fault(raw: Raw) -> Fault | None:
    try:
        size = _compact_bytes(raw)
    except RecursionError:
        return TOO_DEEP
    too_large = f"the item takes {size} bytes as compact JSON: at most {ITEM_BYTES_MAX} are allowed"
    return Fault(RejectionCode.TOO_LARGE, too_large) if size > ITEM_BYTES_MAX else None


def _compact_bytes(raw: Raw) -> int:
    item = json.loads(bytes(raw), parse_int=_number_of_same_length)
    return len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode())


def _number_of_same_length(digits: str) -> int | str:
    """Parse an integer; if it is too long for Python, return a text that is as long with its quotes."""
    return int(digits) if len(digits) <= _INT_DIGITS_MAX else digits[2:]


def _may_repeat_key(raw: Raw) -> bool:
    """Return quickly whether an item may repeat a key: msgspec keeps only the last of each."""
    text = bytes(raw)
    try:
        once = _ENCODER.encode(_ANYTHING.decode(raw))
    except msgspec.DecodeError:  # a number that is allowed only in a skipped field
        return True
    # Without escapes, every quote opens or closes a string: an equal count means that no key was dropped.
    return text != once and (b"\\" in text or text.count(b'"') != once.count(b'"'))


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, in order, with repeated keys."""


_PAIRS: Final = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str)


def _is_repeated(value: object) -> bool:
    return isinstance(value, _Pairs) and len({key for key, _ in value}) < len(value)
