"""The read meter on one machine: a SQLite file that each process opens."""

import sqlite3
from pathlib import Path
from typing import Final

from mauve.core.clock import CLOCK_SLACK_MS
from mauve.core.window import period_of
from mauve.stores.limits.expendable import ExpendableFile
from mauve.stores.limits.read_meter import WINDOW_MS, ReadCost, ReadLimits, Throttled, Usage, periods_kept, refusal_of

BUSY_TIMEOUT_S: Final = 0.25

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS reads (
    org_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    reads INTEGER NOT NULL,
    PRIMARY KEY (org_id, at)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS minutes (org_id TEXT PRIMARY KEY, reads INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS read_counted AFTER INSERT ON reads BEGIN
    INSERT INTO minutes VALUES (NEW.org_id, NEW.reads)
    ON CONFLICT (org_id) DO UPDATE SET reads = reads + excluded.reads;
END;
CREATE TRIGGER IF NOT EXISTS read_counted_in_the_same_moment AFTER UPDATE ON reads BEGIN
    UPDATE minutes SET reads = reads + NEW.reads - OLD.reads WHERE org_id = NEW.org_id;
END;
CREATE TRIGGER IF NOT EXISTS read_over AFTER DELETE ON reads BEGIN
    UPDATE minutes SET reads = reads - OLD.reads WHERE org_id = OLD.org_id;
END;
CREATE TABLE IF NOT EXISTS spent (
    org_id TEXT NOT NULL,
    period TEXT NOT NULL,
    queries INTEGER NOT NULL,
    raw_scans INTEGER NOT NULL,
    PRIMARY KEY (org_id, period)
) WITHOUT ROWID;
"""
# Two statements, so that each finds its rows by the primary key.
_DELETE_READS_UNTIL: Final = "DELETE FROM reads WHERE org_id = ? AND at <= ?"
_DELETE_READS_AFTER: Final = "DELETE FROM reads WHERE org_id = ? AND at > ?"
_DELETE_READS_OUTSIDE: Final = "DELETE FROM reads WHERE at <= ? OR at > ?"
_DELETE_MINUTES: Final = "DELETE FROM minutes WHERE reads <= 0"
_DELETE_PERIODS: Final = "DELETE FROM spent WHERE period NOT BETWEEN ? AND ?"
_READS: Final = "SELECT reads FROM minutes WHERE org_id = ?"
_OLDEST_READ: Final = "SELECT min(at) FROM reads WHERE org_id = ?"
_SPENT: Final = "SELECT queries, raw_scans FROM spent WHERE org_id = ? AND period = ?"
_COUNT_READ: Final = """
INSERT INTO reads (org_id, at, reads) VALUES (?, ?, 1) ON CONFLICT (org_id, at) DO UPDATE SET reads = reads + 1
"""
_SPEND: Final = """
INSERT INTO spent (org_id, period, queries, raw_scans) VALUES (?, ?, ?, ?) ON CONFLICT (org_id, period) DO UPDATE
SET queries = queries + excluded.queries, raw_scans = raw_scans + excluded.raw_scans
"""


class SqliteReadMeter:
    """Nothing is lost with a process. A power cut may lose the counts of the last seconds, but corrupts none.

    A damaged or missing file is recreated; every count then starts at zero.
    """

    def __init__(self, path: Path) -> None:
        self._file = ExpendableFile(path, _SCHEMA, synchronous="NORMAL", busy_timeout_s=BUSY_TIMEOUT_S)
        self._pruned_at = 0

    def take(self, org_id: str, cost: ReadCost, limits: ReadLimits, now_ms: int) -> Throttled | None:
        with self._file.writing() as tx:
            self._prune(tx, now_ms)
            _slide_window(tx, org_id, now_ms)
            refusal = refusal_of(_usage(tx, org_id, now_ms), cost, limits, now_ms)
            if refusal is None:
                _spend(tx, org_id, cost, now_ms)
            return refusal

    def usage(self, org_id: str, now_ms: int) -> Usage:
        with self._file.writing() as tx:
            _slide_window(tx, org_id, now_ms)
            return _usage(tx, org_id, now_ms)

    def close(self) -> None:
        self._file.close()

    def _prune(self, tx: sqlite3.Connection, now_ms: int) -> None:
        """Delete, once a minute, the expired minutes and billing periods of all organizations."""
        if abs(now_ms - self._pruned_at) < WINDOW_MS:
            return
        tx.execute(_DELETE_READS_OUTSIDE, _window_bounds(now_ms))
        tx.execute(_DELETE_MINUTES)
        tx.execute(_DELETE_PERIODS, periods_kept(now_ms))
        self._pruned_at = now_ms


def _slide_window(tx: sqlite3.Connection, org_id: str, now_ms: int) -> None:
    until, after = _window_bounds(now_ms)
    tx.execute(_DELETE_READS_UNTIL, (org_id, until))
    tx.execute(_DELETE_READS_AFTER, (org_id, after))


def _usage(tx: sqlite3.Connection, org_id: str, now_ms: int) -> Usage:
    (reads,) = tx.execute(_READS, (org_id,)).fetchone() or (0,)
    (oldest_read_at,) = tx.execute(_OLDEST_READ, (org_id,)).fetchone()
    queries, raw_scans = tx.execute(_SPENT, (org_id, period_of(now_ms))).fetchone() or (0, 0)
    return Usage(reads, oldest_read_at, queries, raw_scans)


def _spend(tx: sqlite3.Connection, org_id: str, cost: ReadCost, now_ms: int) -> None:
    tx.execute(_COUNT_READ, (org_id, now_ms))
    if any(cost):
        tx.execute(_SPEND, (org_id, period_of(now_ms), cost.queries, cost.raw_scans))


def _window_bounds(now_ms: int) -> tuple[int, int]:
    """Return the last time before the window, and the window's own last time: later ones are from another clock."""
    return now_ms - WINDOW_MS, now_ms + CLOCK_SLACK_MS
