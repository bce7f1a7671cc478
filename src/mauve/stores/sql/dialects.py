"""The differences between SQL engines, the SQLite implementation, and column types for any engine."""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import OperationalError

CONNECTIONS_MAX: Final = 16  # of one pool
STATEMENT_S_MAX: Final = 8.0  # on a server; a request may need several, and must be answered within 20 s
HANG_S: Final = 3.0  # on top of the time limit of statements, which a frozen server does not enforce


class Session(NamedTuple):
    """The settings of a connection to a server."""

    schema: str
    program: str  # shown to others
    connections_max: int = CONNECTIONS_MAX


EXPENDABLE: Final = "mauve_expendable"
"""The option of a connection whose commits need not wait for the disk."""
_WRITING: Final = "mauve_writing"
_LOCK_POLL_MS: Final = 3  # SQLite tries after 1 ms and 2 ms, then gives up
_JOURNAL_WAIT_MS: Final = 50
_JOURNAL_PAUSE_S: Final = 0.1
_STEPS_BETWEEN_CHECKS: Final = 10_000  # of SQLite's virtual machine: a fraction of a millisecond


class Sqlite:
    """A file. One transaction writes at a time; readers see a snapshot from when they began.

    `Postgresql` has the same methods.
    """

    is_server = False

    def __init__(self, url: sa.URL, patience_s: float) -> None:
        self.engine = _sqlite_engine(url, patience_s)
        self._writers = self.engine.execution_options(**{_WRITING: True})

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction in which every statement sees the same snapshot."""
        return self.engine.begin()

    def writing(self) -> sa.Connection:
        """Return a connection on which a write transaction begins with `begin()`."""
        return self._writers.connect()

    @contextmanager
    def limit_statements(self, connection: sa.Connection, seconds: float) -> Iterator[None]:
        """Cancel statements in the block after this time."""
        ends_at = time.monotonic() + seconds
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() >= ends_at, _STEPS_BETWEEN_CHECKS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)

    def check_server(self, connection: sa.Connection) -> None:
        """Do nothing: SQLite comes with Python."""

    def prepare_to_migrate(self, connection: sa.Connection) -> None:
        """Do nothing: a write transaction is the only one."""

    def programs(self, connection: sa.Connection) -> list[str]:  # noqa: ARG002 - the same signature for every engine
        """Return the program name of each connection."""
        return []

    def empty_journal(self, patience_s: float, statement_s: float) -> bool:  # noqa: ARG002 - as above
        """Remove deleted content from the journal; return False if readers prevented it throughout."""
        with closing(self.engine.raw_connection()) as connection:
            gives_up_at = time.monotonic() + patience_s
            while not _truncate_journal(connection.cursor()):
                if time.monotonic() >= gives_up_at:
                    return False
                time.sleep(_JOURNAL_PAUSE_S)
        return True

    def wait_for_notice(self, channel: str, seconds: float) -> None:  # noqa: ARG002 - the same signature
        """Wait for a notification on the channel, at most for this time."""
        time.sleep(seconds)  # SQLite has no notifications.

    def close(self) -> None:
        self.engine.dispose()

    def reason(self, error: BaseException) -> str:
        """Describe why a statement failed, without any row values."""
        return str(error)


def _truncate_journal(cursor: DBAPICursor) -> bool:
    """Try once, briefly: waiting for readers blocks all writers."""
    cursor.execute("PRAGMA busy_timeout")
    (timeout_ms,) = cursor.fetchone() or (0,)
    cursor.execute(f"PRAGMA busy_timeout = {_JOURNAL_WAIT_MS}")
    try:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (is_busy, _, _) = cursor.fetchone() or (1, 0, 0)
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {timeout_ms}")
    return not is_busy


def _sqlite_engine(url: sa.URL, patience_s: float) -> sa.Engine:
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        poolclass=sa.QueuePool,
        pool_size=CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=patience_s,
        connect_args={"timeout": patience_s, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:  # noqa: ANN401 - the driver's own types
        # Issue BEGIN ourselves: sqlite3 would begin late, and fail instead of waiting when a read becomes a write.
        connection.isolation_level = None
        # Secure deletion: deleted and overwritten content does not remain in the file.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if options.get(_WRITING, False):
            _set_synchronous(connection, "NORMAL" if options.get(EXPENDABLE, False) else "FULL")
            _begin_writing(connection, patience_s)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _set_synchronous(connection: sa.Connection, level: str) -> None:
    if connection.info.get("synchronous", "FULL") != level:
        connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        connection.info["synchronous"] = level


def _begin_writing(connection: sa.Connection, patience_s: float) -> None:
    """Take the write lock, polling for it continuously.

    SQLite itself polls at intervals of up to 0.1 s, and would be starved by a process that writes often.
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
    return sqlite.insert(table) if dialect_name == "sqlite" else postgresql.insert(table)


@cache
def upsert_replacing(dialect_name: str, table: Table) -> sa.Insert:
    """Return an insert that replaces an existing row with the same primary key."""
    insert = upsert(dialect_name, table)
    changes = {column.key: insert.excluded[column.key] for column in table.columns if not column.primary_key}
    key = list(table.primary_key.columns)
    if not changes:
        return insert.on_conflict_do_nothing(index_elements=key)
    return insert.on_conflict_do_update(index_elements=key, set_=changes)


@cache
def upsert_adding(dialect_name: str, table: Table) -> sa.Insert:
    """Return an insert that adds to the numbers of an existing row with the same primary key."""
    insert = upsert(dialect_name, table)
    sums = {column.key: column + insert.excluded[column.key] for column in table.columns if not column.primary_key}
    return insert.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=sums)


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


def now_ms(dialect_name: str) -> sa.ColumnElement[int]:
    """Return the database's own clock, in epoch milliseconds: machines that share a database share this clock."""
    if dialect_name == "sqlite":
        since_1970 = (sa.func.julianday("now") - sa.literal(2440587.5)) * sa.literal(86_400_000.0)
    else:
        since_1970 = sa.func.date_part("epoch", sa.func.clock_timestamp()) * sa.literal(1000.0)
    return sa.cast(since_1970, sa.BigInteger)


_ESCAPED: Final = re.compile(r"\\(.)")


def escaped(text: str) -> str:
    r"""Return the text without U+0000, which PostgreSQL rejects: NUL as `\0`, a backslash as `\\`."""
    if "\\" not in text and "\0" not in text:
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else match[1], text)


class AnyText(sa.TypeDecorator[str]):
    """Text that may contain NUL. Equal texts have equal stored forms."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else unescaped(value)


class WholeNumber(sa.TypeDecorator[int]):
    """An integer of any size, as decimal text: 64 bits are too few for sums of money."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002 - the base class's signature
        return None if value is None else int(value)
