"""Hostile deliveries: correctly signed, and built to be slow to parse."""

import json
import re
from collections.abc import Sequence
from typing import Any

from mauve.ingest.webhooks.endpoint import BODY_BYTES_MAX

DIGITS = "9" * 4_200
DECIMALS = ["1e999999999", "1E+99999999999", "9" * 3_000, "0." + "0" * 3_000 + "1", "-1", "NaN", "Infinity", "1_000"]
PADDING = {
    "text": b'"' + b"x" * 1024 + b'"',
    "escapes": b'"' + rb"\u0041" * 1024 + b'"',
    "pairs": b'"' + rb"\ud83d\ude00" * 512 + b'"',
    "lone surrogates": b'"' + rb"\ud83d" * 1024 + b'"',
    "backslashes": b'"' + rb"\\" * 1024 + b'"',
    "quotes": b'"' + rb"\"" * 1024 + b'"',
    "invalid UTF-8": b'"' + b"\xff" * 1024 + b'"',
    "zeros": b"[" + b"0," * 512 + b"0]",
    "lists": b"[" + b"[]," * 512 + b"[]]",
    "objects": b"[" + b"{}," * 512 + b"{}]",
    "floats": b"[" + b"1.5e300," * 512 + b"0]",
    "digits": b"1" * 4096,
    "spaces": b" " * 1024 + b"0",
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(512)) + b"}",
    "same keys": b"{" + b'"id":0,' * 512 + b'"id":0}',
    "nested": b"[" * 500 + b"]" * 500,
    "deeply nested": b"[" * 900 + b"]" * 900,
    "brackets": b'"' + rb"\"[{,\\" * 150 + b'"',
}
"""Values of about a kilobyte to fill a document with."""


def subscription_a(items: object, **fields: object) -> dict[str, Any]:
    data = {"id": "sub_1", "status": "active", "currency": "eur", "items": {"data": items}} | fields
    return {"id": "evt_1", "type": "customer.subscription.updated", "created": 1_793_000_000, "data": {"object": data}}


def subscription_b(**fields: object) -> dict[str, Any]:
    data = {"id": "sub_1", "status": "active", "currency": "eur", "amount": 1200, "recurring_interval": "month"}
    return {"type": "subscription.updated", "timestamp": "2026-10-26T06:13:20Z", "data": data | fields}


def item(count: str = "1", unit: str = "1000") -> dict[str, Any]:
    """Return an item whose interval count has these digits."""
    recurring = {"interval": "day", "interval_count": f"digits:{count}"}
    return {"quantity": 2**53 - 1, "price": {"unit_amount_decimal": unit, "recurring": recurring}}


def written(event: object) -> bytes:
    """Return the event as JSON, with `digits:` texts as numbers."""
    return re.sub(r'"digits:([^"]*)"', r"\1", json.dumps(event)).encode()


def many_values() -> dict[str, bytes]:
    """Return bodies full of values, by what makes each of them slow to walk."""
    head, tail = b'{"id":"evt_1","type":"invoice.paid"', b"}"
    room = BODY_BYTES_MAX - len(head + tail) - 16
    same = b',"data":' + b"[" * 100 + b"]" * 100
    return {
        "nested": filled(subscription_a([]), ("data", "object", "items", "data"), PADDING["deeply nested"]),
        "same keys": head + same * (room // len(same)) + tail,
        "lists": head + b',"data":[' + b"[]," * (room // 3) + b"[]]" + tail,
    }


def filled(event: dict[str, Any], path: Sequence[str], padding: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Fill the value at a path with as much padding as fits: one long text, or a list."""
    *outer, last = path
    data = event
    for name in outer:
        data = data.setdefault(name, {})
    data[last] = "FILL"
    frame = written(event)
    count = (bytes_max - len(frame)) // (len(padding) + 1)
    is_text = padding.startswith(b'"')
    fill = b'"' + padding[1:-1] * count + b'"' if is_text else b"[" + b",".join([padding] * count) + b"]"
    return frame.replace(b'"FILL"', fill)
