"""Answers that must not be cached, kept for an instant so that they are not read for every request."""

import threading
from collections import OrderedDict
from typing import Final

from mauve.stores.read_cache import CachedAnswer, is_fresh

_ENTRIES_MAX: Final = 5_000
_BYTES_MAX: Final = 16 * 1024 * 1024


class BriefAnswers:
    """Limited in time, entries and bytes; the first kept is the first dropped. Safe to use from several threads."""

    def __init__(self, max_age_s: float, entries_max: int = _ENTRIES_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._max_age_s = max_age_s
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: str, now_ms: int) -> CachedAnswer | None:
        found = self._answers.get(key)
        return found if found is not None and is_fresh(found, now_ms, self._max_age_s) else None

    def last(self, key: str) -> CachedAnswer | None:
        """Return the answer even after its time, unless it was dropped."""
        return self._answers.get(key)

    def keep(self, key: str, answer: CachedAnswer) -> None:
        with self._lock:
            earlier = self._answers.pop(key, None)
            self._bytes += len(answer.value) - (len(earlier.value) if earlier else 0)
            self._answers[key] = answer
            while len(self._answers) > self._entries_max or self._bytes > self._bytes_max:
                self._bytes -= len(self._answers.popitem(last=False)[1].value)
