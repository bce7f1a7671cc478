"""Request bodies: half of the events carry times, as clients that batch send them."""

import itertools
import json

STAMP = "@@@@@@@@"  # The generator replaces it each time with other text of the same length, so that every id is new.
NAMES = ("page_view", "button_clicked", "search", "export_started")
_numbers = itertools.count()


def events(count: int, *, ids: bool = True) -> str:
    """Return a typical batch, about 165 bytes per event; every id is new."""
    return json.dumps([_event(next(_numbers), ids=ids) for _ in range(count)], separators=(",", ":"))


def single(*, ids: bool = True) -> str:
    return json.dumps(_event(next(_numbers), ids=ids), separators=(",", ":"))


def valid_and_invalid(count: int) -> str:
    """Return a batch of alternating valid and invalid items."""
    kinds = [
        lambda: _event(next(_numbers), ids=True),
        lambda: {"name": "", "user": "x"},
        lambda: {"name": "view", "props": {"nested": {"a": 1}}},
        lambda: {"name": "view", "at": "yesterday"},
        lambda: {"name": "payment", "id": "", "props": {"amount": 1, "currency": "eur"}},
    ]
    return json.dumps([kinds[place % len(kinds)]() for place in range(count)], separators=(",", ":"))


def some_payments(count: int, every: int = 10) -> str:
    """Return a batch in which every n-th item is a payment."""
    items = [
        _payment(next(_numbers)) if place % every == 0 else _event(next(_numbers), ids=True) for place in range(count)
    ]
    return json.dumps(items, separators=(",", ":"))


def payments(count: int) -> str:
    return json.dumps([_payment(next(_numbers)) for _ in range(count)], separators=(",", ":"))


def with_a_lone_surrogate(count: int) -> str:
    return events(count).replace('"plan":"pro"', '"plan":"\\udc00"', 1)


MIXED = {
    "alternating valid and invalid items": valid_and_invalid,
    "one payment in ten": some_payments,
    "one lone surrogate": with_a_lone_surrogate,
}


def _payment(number: int) -> dict[str, object]:
    return {
        "name": "payment",
        "id": f"{STAMP}-{number}",
        "user": f"user_{number}",
        "props": {"amount": 100 + number, "currency": "eur"},
    }


def _event(number: int, *, ids: bool) -> dict[str, object]:
    event: dict[str, object] = {
        "name": NAMES[number % len(NAMES)],
        "user": f"user_{number * 7919 % 50_000}",
        "props": {"path": f"/articles/{number % 400}", "plan": "pro", "count": number % 90, "beta": number % 2 == 0},
    }
    if ids:
        event["id"] = f"{STAMP}-{number}"
    if number % 2:
        event |= {"at": "2026-11-15T03:20:00.123Z", "sent_at": "2026-11-15T03:20:01Z"}
    return event
