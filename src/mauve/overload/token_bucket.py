"""Token buckets: limit how often a key is used or a password is tried."""

from collections import OrderedDict
from typing import Final

_KEYS_MAX: Final = 10_000


class TokenBuckets:
    """One bucket per key, refilled at the given rate. By default it holds one second's worth.

    Memory is bounded: the least recently used key is dropped first, which only gives it a full bucket again.
    """

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self._per_second = per_second
        self._burst = per_second if burst is None else burst
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # key id → (tokens, at ms)

    def seconds_to_wait(self, key_id: str, now_ms: int) -> int:
        """Take one token and return 0, or return the whole seconds to wait if the bucket is empty."""
        tokens, at = self._buckets.pop(key_id, (self._burst, now_ms))
        # A clock set back neither fills nor empties a bucket.
        tokens = min(self._burst, tokens + max(0, now_ms - at) / 1000 * self._per_second)
        allowed = tokens >= 1
        self._buckets[key_id] = (tokens - 1 if allowed else tokens, now_ms)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(1, round((1 - tokens) / self._per_second))
