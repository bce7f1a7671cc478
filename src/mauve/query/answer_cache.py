"""The answer cache: earlier answers in memory, for callers that ask the same again.

A restart empties it. Other processes have caches of their own.
"""

import threading
from collections import Counter, OrderedDict
from enum import StrEnum
from typing import Final, NamedTuple

from mauve.core.clock import CLOCK_SLACK_MS

_MB: Final = 1024 * 1024
_OVERHEAD_BYTES: Final = 1024  # counted for each answer: small ones take memory, too


class Freshness(StrEnum):
    """Where an answer comes from, by the name that clients see."""

    HIT = "hit"
    MISS = "miss"
    UNCACHED = "uncached"
    STALE = "stale"


class Answer(NamedTuple):
    body: bytes  # JSON, as it is sent
    freshness: Freshness
    read_at: int  # epoch ms at which the read began
    age_s: int | None = None  # of a stale one
    cut_at: int | None = None  # the number of rows in it, if there were more


def is_fresh(answer: Answer, now_ms: int, max_age_s: float) -> bool:
    """Return whether an answer may be served without reading again.

    One from the future was read before the clock was set back, so its age is unknown.
    """
    age_ms = now_ms - answer.read_at
    return age_ms >= -CLOCK_SLACK_MS and max(0, age_ms) < max_age_s * 1000


def replaces(answer: Answer, earlier: Answer) -> bool:
    """Return whether an answer replaces the one stored before it.

    A slower reader does not undo the answer of a faster one. A clock that was set back is not a slow reader.
    """
    return not 0 < earlier.read_at - answer.read_at <= CLOCK_SLACK_MS


class _Entry(NamedTuple):
    answer: Answer
    organization: str
    weight: int  # in bytes


class AnswerCache:
    """Answers of any age by question key: the caller decides whether one is fresh.

    Bounded in entries and bytes. When it is full, the organization that uses the most loses the answer it stored first,
    so no organization can evict the answers of the others. Safe to use from several threads.
    """

    def __init__(self, entries_max: int = 50_000, bytes_max: int = 64 * _MB, answer_bytes_max: int = 8 * _MB) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._answer_bytes_max = answer_bytes_max
        self._bytes = 0
        self._entries: dict[str, _Entry] = {}
        self._keys: dict[str, OrderedDict[str, None]] = {}  # by organization, the first stored first
        self._weights: Counter[str] = Counter()  # by organization
        self._lock = threading.Lock()

    def find(self, key: str) -> Answer | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.answer

    def keep(self, organization: str, key: str, answer: Answer) -> bool:
        """Store the answer unless there is a slightly newer one; return False if it is too large."""
        if len(answer.body) > self._answer_bytes_max:
            return False
        with self._lock:
            earlier = self.find(key)
            if earlier is None or replaces(answer, earlier):
                self._drop(key)
                self._add(key, _Entry(answer, organization, len(key) + len(answer.body) + _OVERHEAD_BYTES))
            return key in self._entries

    def forget(self, project: str) -> None:
        """Remove the answers about a project, whose keys begin with its id and a slash."""
        with self._lock:
            for key in [key for key in self._entries if key.startswith(f"{project}/")]:
                self._drop(key)

    def _add(self, key: str, entry: _Entry) -> None:
        self._entries[key] = entry
        self._keys.setdefault(entry.organization, OrderedDict())[key] = None
        self._weights[entry.organization] += entry.weight
        self._bytes += entry.weight
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            largest = max(self._weights, key=self._weights.__getitem__)
            self._drop(next(iter(self._keys[largest])))

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._bytes -= entry.weight
        self._weights[entry.organization] -= entry.weight
        del self._keys[entry.organization][key]
        if not self._keys[entry.organization]:
            del self._keys[entry.organization], self._weights[entry.organization]
