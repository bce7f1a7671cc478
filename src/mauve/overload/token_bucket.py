"""Token buckets: limit how often a key is used or a password is tried."""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

BURST_S: Final = 5
_KEYS_MAX: Final = 10_000


class TokenBuckets:
    """One bucket per key, refilled at the given rate. By default it holds one second's worth.

    Memory is bounded: the least recently used key is dropped first, which only gives it a full bucket again.
    """

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self.change_rate(per_second, burst)
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # key id → (tokens, at ms)

    def change_rate(self, per_second: float, burst: float | None = None, start: float | None = None) -> None:
        """Change the rate of every bucket, and what a new one starts with: by default, the burst.

        Tokens above the new burst are lost when a bucket is used next.
        """
        self._per_second = per_second
        self._burst = per_second if burst is None else burst
        self._start = self._burst if start is None else start

    def seconds_to_wait(self, key_id: str, now_ms: int, count: int = 1) -> int:
        """Take `count` tokens and return 0, or take none and return the wait in whole seconds."""
        tokens, at = self._buckets.pop(key_id, (self._start, now_ms))
        left, wait_s = taken_from(tokens, now_ms - at, self._per_second, self._burst, count)
        self._buckets[key_id] = (left, now_ms)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return wait_s

    def seconds_until_above(self, floor: float, key_id: str, now_ms: int) -> int:
        """Return the wait in whole seconds until a bucket has more than `floor` tokens; 0 if it has."""
        tokens = self._refilled(key_id, now_ms)
        return 0 if tokens > floor else int((floor - tokens) / self._per_second) + 1

    def charge(self, key_id: str, now_ms: int, count: int) -> None:
        """Take tokens, even if there are too few: the bucket then owes the rest."""
        self._buckets[key_id] = (self._refilled(key_id, now_ms) - count, now_ms)

    def _refilled(self, key_id: str, now_ms: int) -> float:
        self.seconds_to_wait(key_id, now_ms, 0)
        return self._buckets[key_id][0]


class DividedTokenBuckets:
    """A rate that all workers share: each one in use allows an equal part of it, with bursts of five seconds' worth.

    Work is allowed while a bucket is not empty, and charged when its size is known, so a bucket may owe the rest of the
    last request. While the rate is shared, a new bucket starts with one second's worth: other workers may have given
    out the rest.
    """

    def __init__(self, per_second: float, share_use: Callable[[], int]) -> None:
        """`share_use` records a use and returns how many workers use the rate now."""
        self._per_second = per_second
        self._share_use = share_use
        self._workers = 0
        self._buckets = TokenBuckets(per_second)

    def seconds_to_wait(self, key_id: str, now_ms: int, own: int = 0) -> int:
        """Return the wait in whole seconds until a bucket is not empty, apart from what the caller was charged."""
        workers = self._share_use()
        if workers != self._workers:
            self._workers = workers
            share = self._per_second / workers
            self._buckets.change_rate(share, BURST_S * share, None if workers == 1 else share)
        return self._buckets.seconds_until_above(-own, key_id, now_ms)

    def charge(self, key_id: str, now_ms: int, count: int) -> None:
        self._buckets.charge(key_id, now_ms, count)


def taken_from(tokens: float, passed_ms: int, per_second: float, burst: float, count: int = 1) -> tuple[float, int]:
    """Refill a bucket and take tokens; return the rest, and the whole seconds to wait if there were too few."""
    # A clock set back neither fills nor empties a bucket.
    tokens = min(burst, tokens + max(0, passed_ms) / 1000 * per_second)
    if tokens >= count:
        return tokens - count, 0
    return tokens, ceil((count - tokens) / per_second)
