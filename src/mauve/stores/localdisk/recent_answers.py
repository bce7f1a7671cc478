"""The most recently used answers, in memory, so that a hit needs no query."""

import threading
from collections import OrderedDict
from typing import NamedTuple

from mauve.stores.read_cache import CachedAnswer, replaces


class RecentAnswer(NamedTuple):
    answer: CachedAnswer
    checked_at_s: float  # when it was last compared with the shared file
    is_shared: bool  # it was in the file then


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

    def keep(self, key: str, answer: CachedAnswer, now_s: float, *, is_shared: bool) -> bool:
        """Hold a new answer; return False if it is too large."""
        with self._lock:
            held = self._answers.get(key)
            if held is None or replaces(answer, held.answer):
                self._hold(key, RecentAnswer(answer, now_s, is_shared))
            return key in self._answers

    def newest(self, key: str, shared: CachedAnswer | None, now_s: float) -> CachedAnswer | None:
        """Return and hold the newer of both answers. Drop one that was in the file and has been removed from it."""
        with self._lock:
            held = self._answers.get(key)
            if shared is None and held is not None and held.is_shared:
                self._drop(key)
                return None
            newest = RecentAnswer(shared, now_s, is_shared=True) if shared is not None else None
            if held is not None and (newest is None or held.answer.stored_at >= newest.answer.stored_at):
                newest = held._replace(checked_at_s=now_s)
            if newest is None:
                return None
            self._hold(key, newest)
            return newest.answer

    def unchanged(self, key: str, now_s: float) -> CachedAnswer | None:
        """Return the answer held here while the file cannot be read."""
        with self._lock:
            held = self._answers.get(key)
            if held is None:
                return None
            self._hold(key, held._replace(checked_at_s=now_s))
            return held.answer

    def _hold(self, key: str, recent: RecentAnswer) -> None:
        self._drop(key)
        if _size(key, recent) > self._bytes_max:
            return
        self._answers[key] = recent
        self._bytes += _size(key, recent)
        while len(self._answers) > self._entries_max or self._bytes > self._bytes_max:
            self._bytes -= _size(*self._answers.popitem(last=False))

    def _drop(self, key: str) -> None:
        if key in self._answers:
            self._bytes -= _size(key, self._answers.pop(key))


def _size(key: str, recent: RecentAnswer) -> int:
    return len(key) + len(recent.answer.value)
