"""The limits of publishable keys: anyone can read such a key in a page, so its events and bytes are limited.

A key that has used up its rate is refused from the head, before its body is read. Otherwise the request is charged for
what it turns out to be: bytes uncompressed, even of a request that is refused later, and items.
"""

from collections.abc import Callable
from typing import Final

from mauve.core.problems import Code, Problem
from mauve.overload.token_bucket import DividedTokenBuckets

BODY_BYTES_MAX: Final = 1024 * 1024


class PublishableLimits:
    def __init__(self, events_per_s: int, bytes_per_s: int, share_use: Callable[[], int]) -> None:
        self._events = DividedTokenBuckets(events_per_s, share_use)
        self._bytes = DividedTokenBuckets(bytes_per_s, share_use)

    def check_head(self, key_id: str, declared_bytes: int, now_ms: int) -> None:
        """Refuse a key in debt. Charge the request as one event, and the bytes that it declares."""
        _require_no_wait("events", self._events.seconds_to_wait(key_id, now_ms))
        _require_no_wait("bytes", self._bytes.seconds_to_wait(key_id, now_ms))
        self._events.charge(key_id, now_ms, 1)
        self._bytes.charge(key_id, now_ms, min(declared_bytes, BODY_BYTES_MAX))

    def check_body(self, key_id: str, declared_bytes: int, now_ms: int) -> None:
        """Refuse to inflate for a key that other requests have put in debt since the head."""
        own = min(declared_bytes, BODY_BYTES_MAX)
        _require_no_wait("bytes", self._bytes.seconds_to_wait(key_id, now_ms, own))

    def charge_bytes(self, key_id: str, undeclared_bytes: int, now_ms: int) -> None:
        """Charge the bytes that compression or chunks have hidden."""
        self._bytes.charge(key_id, now_ms, max(0, undeclared_bytes))

    def check_items(self, key_id: str, item_count: int, now_ms: int) -> None:
        """Charge the items after the first, which the head has paid for, unless other requests have caused debt."""
        _require_no_wait("events", self._events.seconds_to_wait(key_id, now_ms, own=1))
        self._events.charge(key_id, now_ms, max(0, item_count - 1))


def key_rate_limited(unit: str, wait_s: int) -> Problem:
    message = f"this publishable key sends too many {unit} per second: wait for the seconds in Retry-After"
    return Problem(Code.RATE_LIMITED, message, retry_after_s=wait_s)


def _require_no_wait(unit: str, wait_s: int) -> None:
    if wait_s:
        raise key_rate_limited(unit, wait_s)
