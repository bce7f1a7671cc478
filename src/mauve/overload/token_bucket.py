"""How often something may be done: a publishable key be used, a password be tried."""

from collections import OrderedDict
from typing import Final

_KEYS_MAX: Final = 10_000


class TokenBuckets:
    """A bucket for each key: it fills at the given rate, and holds one second's worth unless said otherwise.

    Bounded: the keys used least recently are forgotten first, which only ever gives them a full bucket again.
    """

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self._per_second = per_second
        self._burst = per_second if burst is None else burst
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # key id → (tokens, at ms)

    def seconds_to_wait(self, key_id: str, now_ms: int) -> int:
        """Take one use; return 0, or the whole seconds after which to try again if there is none left."""
        tokens, at = self._buckets.pop(key_id, (self._burst, now_ms))
        # A clock that was set back neither fills nor empties a bucket.
        tokens = min(self._burst, tokens + max(0, now_ms - at) / 1000 * self._per_second)
        allowed = tokens >= 1
        self._buckets[key_id] = (tokens - 1 if allowed else tokens, now_ms)
        if len(self._buckets) > _KEYS_MAX:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(1, round((1 - tokens) / self._per_second))
