"""The limits of publishable keys: anyone can read such a key in a page, so its events and bytes are limited.

Requests are refused from the head if possible. Bytes are counted uncompressed and before they are parsed, even those of
requests that are refused later: they limit the work that a key can cause.
"""

from collections.abc import Callable
from typing import Final, Self

from mauve.core.problems import Code, Problem
from mauve.ingest.wire import ITEMS_MAX
from mauve.overload.token_bucket import DividedTokenBuckets

BODY_BYTES_MAX: Final = 1024 * 1024


class PublishableLimits:
    def __init__(self, events: DividedTokenBuckets, size: DividedTokenBuckets) -> None:
        self._events = events
        self._bytes = size

    @classmethod
    def of_rates(cls, events_per_s: int, bytes_per_s: int, share_use: Callable[[], int]) -> Self:
        return cls(
            DividedTokenBuckets(events_per_s, share_use, ITEMS_MAX),
            DividedTokenBuckets(bytes_per_s, share_use, BODY_BYTES_MAX),
        )

    def check_head(self, key_id: str, declared_bytes: int | None, now_ms: int) -> None:
        """Count a request as one event, and the bytes that it declares."""
        _require_no_wait("events", self._events.seconds_to_wait(key_id, now_ms))
        if declared_bytes:
            # A longer body is refused for its size, so that no client waits in vain.
            size = min(declared_bytes, BODY_BYTES_MAX)
            _require_no_wait("bytes", self._bytes.seconds_to_wait(key_id, now_ms, size))

    def check_body(self, key_id: str, undeclared_bytes: int, now_ms: int) -> None:
        """Count the bytes that compression or chunks have hidden."""
        if undeclared_bytes > 0:
            _require_no_wait("bytes", self._bytes.charge(key_id, now_ms, undeclared_bytes))

    def check_items(self, key_id: str, item_count: int, now_ms: int) -> None:
        """Count the items of a request, the first of which its head has paid for."""
        if item_count > 1:
            _require_no_wait("events", self._events.seconds_to_wait(key_id, now_ms, item_count - 1))


def key_rate_limited(unit: str, wait_s: int) -> Problem:
    message = f"this publishable key sends too many {unit} per second: wait for the seconds in Retry-After"
    return Problem(Code.RATE_LIMITED, message, retry_after_s=wait_s)


def _require_no_wait(unit: str, wait_s: int) -> None:
    if wait_s:
        raise key_rate_limited(unit, wait_s)
