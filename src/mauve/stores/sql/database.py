"""Connections and transactions: the only place that knows the differences between SQLite and PostgreSQL."""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from mauve.stores import StoreUnavailableError
from mauve.stores.cancellation import current_cancellation, seconds_left

_WRITING: Final = "mauve_writing"
_CONNECTIONS_MAX: Final = 8
_LOCK_POLL_MS: Final = 3  # SQLite tries after 1 ms and 2 ms, then gives up
_JOURNAL_WAIT_MS: Final = 50
_JOURNAL_PAUSE_S: Final = 0.1
_STEPS_BETWEEN_CHECKS: Final = 10_000  # of SQLite's virtual machine: a fraction of a millisecond


def sqlite_url(path: Path) -> sa.URL:
    return sa.URL.create("sqlite+pysqlite", database=str(path))


class Database:
    """One SQL database. Every failure of the engine raises `StoreUnavailableError`."""

    def __init__(self, url: sa.URL, busy_timeout_s: float) -> None:
        is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _sqlite_engine(url, busy_timeout_s) if is_sqlite else _server_engine(url)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with _as_unavailable(), self._engine.begin() as connection, _with_deadline(connection):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a write transaction; commit when the block ends, roll back if it raises.

        Roll back as well if the caller has given up by then.
        """
        engine = self._engine.execution_options(**{_WRITING: True})
        with _as_unavailable(), engine.connect() as connection, connection.begin() as transaction:
            yield connection
            with current_cancellation().committing():
                transaction.commit()

    def empty_journal(self, patience_s: float) -> bool:
        """Empty SQLite's write-ahead log; return False if readers have prevented it all the time."""
        if self._engine.dialect.name != "sqlite":
            return True
        with _as_unavailable(), closing(self._engine.raw_connection()) as connection:
            gives_up_at = time.monotonic() + patience_s
            while not _truncate_journal(connection.cursor()):
                if time.monotonic() >= gives_up_at:
                    return False
                time.sleep(_JOURNAL_PAUSE_S)
        return True

    def close(self) -> None:
        self._engine.dispose()


def _truncate_journal(cursor: DBAPICursor) -> bool:
    """Try once, briefly: while it waits for readers, all writers are blocked."""
    cursor.execute("PRAGMA busy_timeout")
    (timeout_ms,) = cursor.fetchone() or (0,)
    cursor.execute(f"PRAGMA busy_timeout = {_JOURNAL_WAIT_MS}")
    try:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (is_busy, _, _) = cursor.fetchone() or (1, 0, 0)
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {timeout_ms}")
    return not is_busy


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:  # sqlite3.Error: a PRAGMA on a damaged file
        # The driver's message: SQLAlchemy's would include the statement.
        reason = getattr(error, "orig", None) or error
        raise StoreUnavailableError(str(reason)) from error


@contextmanager
def _with_deadline(connection: sa.Connection) -> Iterator[None]:
    """Make the engine end its work at the deadline of this thread's read."""
    left_s = seconds_left()
    if left_s == math.inf:
        yield
    elif connection.dialect.name != "sqlite":
        limit = sa.func.set_config("statement_timeout", str(max(1, int(left_s * 1000))), sa.true())
        connection.execute(sa.select(limit))
        yield
    else:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: seconds_left() <= 0, _STEPS_BETWEEN_CHECKS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)


def _server_engine(url: sa.URL) -> sa.Engine:
    return sa.create_engine(url, hide_parameters=True)


def _sqlite_engine(url: sa.URL, busy_timeout_s: float) -> sa.Engine:
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        poolclass=sa.QueuePool,
        pool_size=_CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=busy_timeout_s,
        connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:  # noqa: ANN401 - the driver's own types
        # Issue BEGIN ourselves: sqlite3 would begin late, and fail instead of waiting when a read turns into a write.
        connection.isolation_level = None
        # Secure deletion: nothing deleted or overwritten remains in the file.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writing = connection.get_execution_options().get(_WRITING, False)
        if writing:
            _begin_writing(connection, busy_timeout_s)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_writing(connection: sa.Connection, patience_s: float) -> None:
    """Take the write lock, polling for it without a pause.

    SQLite itself polls at intervals of up to 0.1 s, and would never get the lock from a process that writes often.
    """
    gives_up_at = time.monotonic() + patience_s
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {_LOCK_POLL_MS}")
    try:
        while not _try_begin(connection, is_last_try=time.monotonic() >= gives_up_at):
            pass
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")


def _try_begin(connection: sa.Connection, *, is_last_try: bool) -> bool:
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        code = getattr(error.orig, "sqlite_errorcode", None)
        if is_last_try or code is None or code & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def upsert(dialect_name: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into the table, to be completed with `on_conflict_…`.

    Building one takes longer than running it: cache it by dialect.
    """
    if dialect_name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


@cache
def upsert_counts(dialect_name: str, table: Table) -> sa.Insert:
    """Return an insert into a table with `count` and `last_at` that adds to an existing row."""
    insert = upsert(dialect_name, table)
    is_later = insert.excluded.last_at > table.c.last_at
    changes = {
        "count": table.c.count + insert.excluded.count,
        "last_at": sa.case((is_later, insert.excluded.last_at), else_=table.c.last_at),
    }
    return insert.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)
