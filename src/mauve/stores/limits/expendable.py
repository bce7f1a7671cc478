"""A SQLite file that may be lost: opened when first needed, recreated when it is damaged or missing."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import structlog

from mauve.stores import StoreUnavailableError

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# SQLITE_ERROR means that a table or column is missing: the file is from another release, or not ours.
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
_PRIMARY_CODE: Final = 0xFF
_SCHEMA_VERSION: Final = 1
_WAL_BYTES_MAX: Final = 16 * 1024 * 1024

log = structlog.get_logger()


class ExpendableFile:
    """One connection to the file, safe to use from several threads. Several processes may open the same file.

    Every failure raises `StoreUnavailableError`, with nothing of the block applied. The next call reopens the file, or
    finds a new one in place of a damaged one. Only the first of several failures in a row is logged.
    """

    def __init__(
        self, path: Path, schema: str, *, synchronous: Literal["OFF", "NORMAL"], busy_timeout_s: float
    ) -> None:
        self._path = path
        self._schema = schema
        self._synchronous = synchronous
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # of the file that the connection has open
        self._is_usable = True

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                with transaction(self._opened(), begin) as connection:
                    yield connection
            except (sqlite3.Error, OSError) as error:
                self._recover_from(error)
                raise StoreUnavailableError(str(error)) from error
            self._is_usable = True

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and _identity_of(self._path) == self._identity:
            return self._connection
        self._disconnect()
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        self._identity = _identity_of(self._path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={self._synchronous}",
            f"journal_size_limit={_WAL_BYTES_MAX}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        # Creating tables takes the write lock even if they exist, and readers should not have to wait for it.
        if connection.execute("PRAGMA user_version").fetchone() != (_SCHEMA_VERSION,):
            connection.executescript(f"BEGIN IMMEDIATE; {self._schema} PRAGMA user_version={_SCHEMA_VERSION}; COMMIT;")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _recover_from(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY_CODE
        if self._is_usable:
            advice = "continuing without it" + (" and recreating it" if code in _DAMAGED else "")
            log.warning("file_unusable", file=self._path.name, reason=str(error), advice=advice)
        self._is_usable = False
        if code in _BUSY:
            return
        self._disconnect()
        # Another process may already have created a new file: keep that one.
        if code in _DAMAGED and _identity_of(self._path) == self._identity:
            _remove(self._path)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - on every call: twice as fast as the method
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    """Commit when the block ends; roll back if it or the commit fails. `begin` is BEGIN or BEGIN IMMEDIATE."""
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # A full disk, for example, has already ended it.
            connection.execute("ROLLBACK")
        raise
