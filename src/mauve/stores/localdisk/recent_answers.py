"""The most recently used answers, in memory, so that a hit needs no query."""

import threading
from collections import OrderedDict
from typing import NamedTuple

from mauve.stores.read_cache import CachedAnswer, replaces


class RecentAnswer(NamedTuple):
    answer: CachedAnswer
    checked_at_s: float  # when it was last compared with the shared file


class RecentAnswers:
    """Limited in entries and bytes; the least recently used are evicted. Safe to use from several threads."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: OrderedDict[str, RecentAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: str) -> RecentAnswer | None:
        with self._lock:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def keep(self, key: str, answer: CachedAnswer, now_s: float) -> bool:
        """Hold a new answer; return False if it is too large."""
        with self._lock:
            held = self._answers.get(key)
            if held is None or replaces(answer, held.answer):
                self._hold(key, RecentAnswer(answer, now_s))
            return key in self._answers

    def newest(self, key: str, shared: CachedAnswer | None, now_s: float) -> CachedAnswer | None:
        """Return and hold the newer of the shared answer and the one held here."""
        with self._lock:
            held = self._answers.get(key)
            if held is not None and (shared is None or held.answer.stored_at >= shared.stored_at):
                shared = held.answer
            if shared is not None:
                self._hold(key, RecentAnswer(shared, now_s))
            return shared

    def _hold(self, key: str, recent: RecentAnswer) -> None:
        if key in self._answers:
            self._bytes -= _size(key, self._answers.pop(key))
        if _size(key, recent) > self._bytes_max:
            return
        self._answers[key] = recent
        self._bytes += _size(key, recent)
        while len(self._answers) > self._entries_max or self._bytes > self._bytes_max:
            self._bytes -= _size(*self._answers.popitem(last=False))


def _size(key: str, recent: RecentAnswer) -> int:
    return len(key) + len(recent.answer.value)
