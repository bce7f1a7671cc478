"""Whether a text that somebody sent tells of a person, and what is left of it without them. Pure."""

import json
from typing import Any, Final

import msgspec

from mauve.core.batch import MalformedBatchError, packed_header, unpacked

_NAMING: Final = ("user", "user_id", "customer", "customer_id")
"""The fields in which clients and billers name a person."""


def names_person(payload: bytes, user: str) -> bool:
    """Tell whether an item names the person in one of the fields for it."""
    if not _may_hold(payload, user):
        return False
    try:
        item = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return True  # Nobody can read it, but it holds the name.
    return isinstance(item, dict) and user in {_text(item.get(field)) for field in _NAMING}


def without_person(record: bytes, project: str, user: str) -> bytes | None:
    """Return a record of the log without the person; None if there is nothing of them in it.

    One that cannot be read is emptied if it holds the name at all.
    """
    if not _may_hold(record, user):
        return None
    try:
        batch = unpacked(record)
        items = msgspec.json.decode(batch.items)
    except (MalformedBatchError, msgspec.DecodeError, RecursionError):
        return b""
    if batch.project != project:
        return None
    listed = items if isinstance(items, list) else [items]
    kept = [_anonymous(item) if _is_of(item, user) else item for item in listed]
    if kept == listed:
        return None
    header = packed_header(batch.project, batch.org_id, batch.received_at, batch.arrived_at, batch.event_count)
    return header + msgspec.json.encode(kept)


def _may_hold(text: bytes, user: str) -> bool:
    """Tell quickly, and never wrongly that it does not: what is escaped may hold anything."""
    return b"\\" in text or msgspec.json.encode(user) in text or json.dumps(user).encode() in text


def _is_of(item: Any, user: str) -> bool:  # noqa: ANN401 - whatever JSON may hold
    return isinstance(item, dict) and item.get("user") == user


def _anonymous(item: dict[str, Any]) -> dict[str, Any]:
    return {"name": item["name"]} if "name" in item else {}


def _text(value: object) -> str | None:
    """Return the text of a field, or the id of an object in its place."""
    held = value.get("id") if isinstance(value, dict) else value
    return held if isinstance(held, str) else None
