"""Find and remove a person in texts that clients or billers sent. Pure."""

import json
from typing import Any, Final

import msgspec

from mauve.core.batch import MalformedBatchError, packed_header, unpacked

_NAMING: Final = ("user", "user_id", "customer", "customer_id")
"""The fields in which clients and billers name a person."""


def names_person(payload: bytes, user: str) -> bool:
    """Return whether an item names the person in one of the fields meant for it."""
    if not _may_hold(payload, user):
        return False
    try:
        item = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return True  # Unreadable, but it holds the name.
    return isinstance(item, dict) and user in {_text(item.get(field)) for field in _NAMING}


def without_person(record: bytes, project: str, user: str) -> bytes | None:
    """Return a log record without the person, or None if it does not mention them.

    An unreadable record that holds the name is emptied.
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


def is_of_project(record: bytes, project: str) -> bool:
    """Return whether a log record belongs to a project. An unreadable one belongs to it if it holds its id."""
    try:
        return unpacked(record).project == project
    except MalformedBatchError:
        return project.encode() in record


def _may_hold(text: bytes, user: str) -> bool:
    """Check quickly, without false negatives: escaped text may hold anything."""
    return b"\\" in text or msgspec.json.encode(user) in text or json.dumps(user).encode() in text


def _is_of(item: Any, user: str) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(item, dict) and item.get("user") == user


def _anonymous(item: dict[str, Any]) -> dict[str, Any]:
    return {"name": item["name"]} if "name" in item else {}


def _text(value: object) -> str | None:
    """Return a field's text, or the id if the field holds an object."""
    held = value.get("id") if isinstance(value, dict) else value
    return held if isinstance(held, str) else None
