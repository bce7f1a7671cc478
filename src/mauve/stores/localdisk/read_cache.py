"""The read cache on one machine: a SQLite file, and the most recently used answers in memory."""

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from mauve.stores import StoreUnavailableError
from mauve.stores.limits.expendable import ExpendableFile
from mauve.stores.localdisk.recent_answers import RecentAnswers
from mauve.stores.read_cache import CachedAnswer, replaces

_RECHECK_EVERY_S: Final = 1.0
_BUSY_TIMEOUT_S: Final = 0.1
_MB: Final = 1024 * 1024

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    project BLOB NOT NULL,
    stored_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_project ON answers (project);
CREATE TABLE IF NOT EXISTS totals (
    only INTEGER PRIMARY KEY CHECK (only = 1), entries INTEGER NOT NULL, bytes INTEGER NOT NULL
);
INSERT OR IGNORE INTO totals VALUES (1, 0, 0);
CREATE TRIGGER IF NOT EXISTS answer_kept AFTER INSERT ON answers BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + length(NEW.value);
END;
CREATE TRIGGER IF NOT EXISTS answer_gone AFTER DELETE ON answers BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - length(OLD.value);
END;
"""
_FIND: Final = "SELECT stored_at, checksum, value FROM answers WHERE key = ?"
_REMOVE: Final = "DELETE FROM answers WHERE key = ?"
_KEEP: Final = "INSERT INTO answers (key, project, stored_at, checksum, value) VALUES (?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM answers WHERE project = ?"
_IS_OVERFULL: Final = "SELECT entries > ? OR bytes > ? FROM totals"
_REMOVE_OLDEST: Final = "DELETE FROM answers WHERE number = (SELECT min(number) FROM answers)"

_RESET_TOTALS: Final = "UPDATE totals SET entries = 0, bytes = 0"


class CacheBounds(NamedTuple):
    entries_max: int = 50_000
    bytes_max: int = 256 * _MB
    value_bytes_max: int = 8 * _MB
    recent_entries_max: int = 10_000  # in the memory of each process
    recent_bytes_max: int = 32 * _MB


class SqliteReadCache:
    """Nothing is synced: after a power cut answers may be missing or damaged; a checksum detects the damaged ones.

    An answer found within the last second is found again without touching the file.
    """

    def __init__(
        self, path: Path, bounds: CacheBounds | None = None, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds or CacheBounds()
        self._ticks = ticks
        self._recent = RecentAnswers(self._bounds.recent_entries_max, self._bounds.recent_bytes_max)
        # One connection each, so that readers do not wait for a write.
        self._reader, self._writer = (
            ExpendableFile(path, _SCHEMA, synchronous="OFF", busy_timeout_s=_BUSY_TIMEOUT_S) for _ in range(2)
        )

    def find(self, key: str) -> CachedAnswer | None:
        now_s = self._ticks()
        recent = self._recent.find(key)
        if recent is not None and now_s - recent.checked_at_s < _RECHECK_EVERY_S:
            return recent.answer
        try:
            with self._reader.reading() as tx:
                shared = _found(tx, _digest_of(key))
        except StoreUnavailableError:
            return self._recent.unchanged(key, now_s)
        return self._recent.newest(key, shared, now_s)

    def keep(self, key: str, answer: CachedAnswer) -> bool:
        if len(answer.value) > min(self._bounds.value_bytes_max, self._bounds.bytes_max):
            return False
        is_written = self._written(key, answer)
        return self._recent.keep(key, answer, self._ticks(), is_shared=is_written) or is_written

    def forget(self, project: str) -> None:
        with self._writer.writing() as tx:
            tx.execute(_FORGET, (_digest_of(project),))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _written(self, key: str, answer: CachedAnswer) -> bool:
        digest, project = _digest_of(key), _digest_of(key.partition("/")[0])
        try:
            with self._writer.writing() as tx:
                earlier = _found(tx, digest)
                if earlier is None or replaces(answer, earlier):
                    tx.execute(_REMOVE, (digest,))
                    tx.execute(_KEEP, (digest, project, answer.stored_at, _checksum(digest, answer), answer.value))
                    self._make_room(tx)
        except StoreUnavailableError:
            return False
        return True

    def _make_room(self, tx: sqlite3.Connection) -> None:
        bounds = (self._bounds.entries_max, self._bounds.bytes_max)
        while tx.execute(_IS_OVERFULL, bounds).fetchone()[0]:
            if tx.execute(_REMOVE_OLDEST).rowcount == 0:
                tx.execute(_RESET_TOTALS)  # A damaged total must not keep the cache empty.


def _found(tx: sqlite3.Connection, digest: bytes) -> CachedAnswer | None:
    row = tx.execute(_FIND, (digest,)).fetchone()
    if row is None:
        return None
    stored_at, checksum, value = row
    answer = CachedAnswer(value, stored_at)
    return answer if checksum == _checksum(digest, answer) else None


def _digest_of(key: str) -> bytes:
    """Return a fixed-size digest of the key, which may be any text, even invalid Unicode."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _checksum(digest: bytes, answer: CachedAnswer) -> int:
    return zlib.crc32(answer.value, zlib.crc32(b"%b %d" % (digest, answer.stored_at)))
