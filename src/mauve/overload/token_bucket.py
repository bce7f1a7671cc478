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
        left, wait_s = taken_from(tokens, now_ms - at, self._per_second, self._burst)
        self._buckets[key_id] = (left, now_ms)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return wait_s


def taken_from(tokens: float, passed_ms: int, per_second: float, burst: float) -> tuple[float, int]:
    """Refill a bucket and take one token; return the rest, and the whole seconds to wait if there was none."""
    # A clock set back neither fills nor empties a bucket.
    tokens = min(burst, tokens + max(0, passed_ms) / 1000 * per_second)
    if tokens >= 1:
        return tokens - 1, 0
    return tokens, max(1, round((1 - tokens) / per_second))
