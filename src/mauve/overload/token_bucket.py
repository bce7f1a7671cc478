"""Token buckets: limit how often a key is used or a password is tried."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_KEYS_MAX: Final = 10_000


class TokenBuckets:
    """One bucket per key, refilled at the given rate. By default it holds one second's worth.

    Memory is bounded: the least recently used key is dropped first, which only gives it a full bucket again.
    """

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self.change_rate(per_second, burst)
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # key id → (tokens, at ms)

    def change_rate(self, per_second: float, burst: float | None = None) -> None:
        """Change the rate of every bucket. Tokens above the new burst are lost when a bucket is used next."""
        self._per_second = per_second
        self._burst = per_second if burst is None else burst

    def seconds_to_wait(self, key_id: str, now_ms: int, count: int = 1) -> int:
        """Take so many tokens and return 0, or take none and return the whole seconds to wait for them."""
        tokens, at = self._buckets.pop(key_id, (self._burst, now_ms))
        left, wait_s = taken_from(tokens, now_ms - at, self._per_second, self._burst, count)
        self._buckets[key_id] = (left, now_ms)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return wait_s


class DividedTokenBuckets:
    """A rate that all workers keep in sum: each that uses it allows an equal share, and at least one a second."""

    def __init__(self, per_second: float, share_use: Callable[[], int]) -> None:
        """`share_use` notes a use here, and returns how many workers use the rate now."""
        self._per_second = per_second
        self._share_use = share_use
        self._workers = 1
        self._buckets = TokenBuckets(per_second)

    def seconds_to_wait(self, key_id: str, now_ms: int) -> int:
        """Take one token and return 0, or return the whole seconds to wait if the bucket is empty."""
        workers = self._share_use()
        if workers != self._workers:
            self._workers = workers
            self._buckets.change_rate(max(1.0, self._per_second / workers))
        return self._buckets.seconds_to_wait(key_id, now_ms)


def taken_from(tokens: float, passed_ms: int, per_second: float, burst: float, count: int = 1) -> tuple[float, int]:
    """Refill a bucket and take tokens; return the rest, and the whole seconds to wait if there were too few."""
    # A clock set back neither fills nor empties a bucket.
    tokens = min(burst, tokens + max(0, passed_ms) / 1000 * per_second)
    if tokens >= count:
        return tokens - count, 0
    return tokens, max(1, round((count - tokens) / per_second))
