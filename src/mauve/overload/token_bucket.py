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

    def owe(self, key_id: str, count: int) -> int:
        """Take tokens that a bucket lacks, up to its burst; return the wait in whole seconds to take as many again."""
        tokens, at = self._buckets[key_id]
        tokens = max(-self._burst, tokens - count)
        self._buckets[key_id] = (tokens, at)
        return ceil((count - tokens) / self._per_second)


class DividedTokenBuckets:
    """A rate that all workers share: each one in use allows an equal part of it, with bursts of five seconds' worth.

    Tokens that other workers may have given out already are not given out again: while the rate is shared, a new bucket
    starts with one second's worth.
    """

    def __init__(self, per_second: float, share_use: Callable[[], int], count_max: int) -> None:
        """`share_use` records a use and returns how many workers use the rate now; a full bucket holds `count_max`."""
        self._per_second = per_second
        self._share_use = share_use
        self._count_max = count_max
        self._workers = 0
        self._buckets = TokenBuckets(per_second)

    def seconds_to_wait(self, key_id: str, now_ms: int, count: int = 1) -> int:
        """Take `count` tokens and return 0, or take none and return the wait in whole seconds."""
        workers = self._share_use()
        if workers != self._workers:
            self._workers = workers
            share = self._per_second / workers
            start = None if workers == 1 else max(share, self._count_max)
            self._buckets.change_rate(share, max(BURST_S * share, self._count_max), start)
        return self._buckets.seconds_to_wait(key_id, now_ms, count)

    def charge(self, key_id: str, now_ms: int, count: int) -> int:
        """Take `count` tokens for work that is already done; if there are too few, the bucket owes the rest."""
        wait_s = self.seconds_to_wait(key_id, now_ms, count)
        return wait_s and self._buckets.owe(key_id, count)


def taken_from(tokens: float, passed_ms: int, per_second: float, burst: float, count: int = 1) -> tuple[float, int]:
    """Refill a bucket and take tokens; return the rest, and the whole seconds to wait if there were too few."""
    # A clock set back neither fills nor empties a bucket.
    tokens = min(burst, tokens + max(0, passed_ms) / 1000 * per_second)
    if tokens >= count:
        return tokens - count, 0
    return tokens, ceil((count - tokens) / per_second)
