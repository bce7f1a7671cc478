"""The edge on one machine: a SQLite file that each process opens.

Readers depend on no other process: they see committed records even while the core is down.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, get_args

import msgspec

from mauve.stores import StoreUnavailableError
from mauve.stores.edge import Changes, PublishedRecord
from mauve.stores.localdisk.expendable import transaction

FORMAT: Final = 1
"""Raise it whenever the table changes so that the release before would misread it; new kinds of records do no harm."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS published (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS published_by_revision ON published (revision);
CREATE TABLE IF NOT EXISTS identity (only INTEGER PRIMARY KEY CHECK (only = 1), edge_id TEXT NOT NULL);
INSERT OR IGNORE INTO identity VALUES (1, lower(hex(randomblob(16))));
"""
# The comparison is `>=`, not `>`: publishing the same version again repairs a record and does no harm.
_PUBLISH: Final = """
INSERT INTO published (kind, id, version, revision, record) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO UPDATE
SET version = excluded.version, revision = excluded.revision, record = excluded.record
WHERE excluded.version >= published.version
"""
_NEWEST_REVISION: Final = "SELECT coalesce(max(revision), 0) FROM published"
_CHANGES: Final = "SELECT revision, kind, record FROM published WHERE revision > ? ORDER BY revision"
# Other releases may have published kinds of records that this one does not know.
_KINDS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(PublishedRecord))

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PublishedRecord)


class SqliteEdge:
    """Publisher and reader over one file. Safe to use from several threads."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._lock = threading.Lock()
        with _as_unavailable():
            self._connection = sqlite3.connect(
                path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_SCHEMA)

    def publish(self, records: Sequence[PublishedRecord]) -> str:
        with self._lock, _as_unavailable(), transaction(self._connection, "BEGIN IMMEDIATE") as connection:
            (revision,) = connection.execute(_NEWEST_REVISION).fetchone()
            for number, record in enumerate(records, start=revision + 1):
                kind = record.__struct_config__.tag
                row = (kind, record.record_id, record.version, number, _encoder.encode(record))
                connection.execute(_PUBLISH, row)
            return self._edge_id()

    def replace(self, records: Sequence[PublishedRecord]) -> None:
        """Hold these records and no others."""
        rows = [
            (each.__struct_config__.tag, each.record_id, each.version, number, _encoder.encode(each))
            for number, each in enumerate(records, start=1)
        ]
        with self._lock, _as_unavailable(), transaction(self._connection, "BEGIN IMMEDIATE") as connection:
            connection.execute("DELETE FROM published")
            connection.executemany(_PUBLISH, rows)

    def edge_id(self) -> str:
        with self._lock, _as_unavailable():
            return self._edge_id()

    def changes_since(self, revision: int) -> Changes:
        with self._lock, _as_unavailable():
            rows = self._connection.execute(_CHANGES, (revision,)).fetchall()
            # Read the file again next time: cached pages would hide that it was damaged.
            self._connection.execute("PRAGMA shrink_memory")
        if not rows:
            return Changes([], revision)
        return Changes([_decoder.decode(record) for _, kind, record in rows if kind in _KINDS], rows[-1][0])

    def staleness_s(self, revision: int) -> float:  # noqa: ARG002 - of the protocol
        return 0.0  # `changes_since` reads the file.

    def close(self) -> None:
        self._connection.close()

    def _edge_id(self) -> str:
        (edge_id,) = self._connection.execute("SELECT edge_id FROM identity").fetchone()
        return str(edge_id)


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailableError(str(error)) from error
