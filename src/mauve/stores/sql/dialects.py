"""Everything that differs between SQLite and PostgreSQL."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import sqlalchemy as sa
import structlog
from sqlalchemy import Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import OperationalError

from mauve.stores import UnsupportedServerError

if TYPE_CHECKING:
    import psycopg

CONNECTIONS_MAX: Final = 16  # of one pool
STATEMENT_S_MAX: Final = 8.0  # on a server; a request may need several, and has to be answered within 20 s
HANG_S: Final = 3.0  # on top of the time limit of statements, which a frozen server does not enforce

log = structlog.get_logger()


class Session(NamedTuple):
    """What a connection to a server sets."""

    schema: str
    program: str  # shown to others
    connections_max: int = CONNECTIONS_MAX


class Dialect(Protocol):
    """One engine of SQL, opened on one database."""

    engine: sa.Engine
    is_server: bool

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction in which every statement sees the same moment."""
        ...

    def writing(self) -> sa.Connection:
        """Return a connection on which a write transaction begins with `begin()`."""
        ...

    def limit_statements(self, connection: sa.Connection, seconds: float) -> AbstractContextManager[None]:
        """End the statements of the block after this time."""
        ...

    def commit_quickly(self, connection: sa.Connection) -> None:
        """Let the commit of this transaction not wait for the disk."""
        ...

    def check_server(self, connection: sa.Connection) -> None:
        """Raise unless this release supports the server."""
        ...

    def prepare_to_migrate(self, connection: sa.Connection) -> None:
        """Let no other process migrate until this transaction ends, and create the schema."""
        ...

    def programs(self, connection: sa.Connection) -> list[str]:
        """Return the names of the programs that are connected now, once for each connection."""
        ...

    def empty_journal(self, patience_s: float, statement_s: float) -> bool:
        """Remove deleted content from the journal; return False if readers have prevented it all the time."""
        ...

    def wait_for_notice(self, channel: str, seconds: float) -> None:
        """Wait until another transaction announces something on the channel, at most for this time."""
        ...

    def reason(self, error: BaseException) -> str:
        """Say why a statement failed, without the values of any row."""
        ...


def open_dialect(url: sa.URL, patience_s: float, session: Session) -> Dialect:
    if url.get_backend_name() == "sqlite":
        return Sqlite(url, patience_s)
    return Postgresql(url, patience_s, session)


_WRITING: Final = "mauve_writing"
_LOCK_POLL_MS: Final = 3  # SQLite tries after 1 ms and 2 ms, then gives up
_JOURNAL_WAIT_MS: Final = 50
_JOURNAL_PAUSE_S: Final = 0.1
_STEPS_BETWEEN_CHECKS: Final = 10_000  # of SQLite's virtual machine: a fraction of a millisecond


class Sqlite:
    """A file. One transaction writes at a time; readers see the moment at which they began."""

    is_server = False

    def __init__(self, url: sa.URL, patience_s: float) -> None:
        self.engine = _sqlite_engine(url, patience_s)
        self._writers = self.engine.execution_options(**{_WRITING: True})

    def reading(self) -> AbstractContextManager[sa.Connection]:
        return self.engine.begin()

    def writing(self) -> sa.Connection:
        return self._writers.connect()

    @contextmanager
    def limit_statements(self, connection: sa.Connection, seconds: float) -> Iterator[None]:
        ends_at = time.monotonic() + seconds
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() >= ends_at, _STEPS_BETWEEN_CHECKS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, 0)

    def commit_quickly(self, connection: sa.Connection) -> None:
        """Do nothing: SQLite decides that for a whole file."""

    def check_server(self, connection: sa.Connection) -> None:
        """Do nothing: SQLite comes with Python."""

    def prepare_to_migrate(self, connection: sa.Connection) -> None:
        """Do nothing: a write transaction is the only one."""

    def programs(self, connection: sa.Connection) -> list[str]:  # noqa: ARG002 - the same signature for every engine
        return []

    def empty_journal(self, patience_s: float, statement_s: float) -> bool:  # noqa: ARG002 - as above
        with closing(self.engine.raw_connection()) as connection:
            gives_up_at = time.monotonic() + patience_s
            while not _truncate_journal(connection.cursor()):
                if time.monotonic() >= gives_up_at:
                    return False
                time.sleep(_JOURNAL_PAUSE_S)
        return True

    def wait_for_notice(self, channel: str, seconds: float) -> None:  # noqa: ARG002 - the same signature
        time.sleep(seconds)  # A file announces nothing.

    def reason(self, error: BaseException) -> str:
        return str(error)


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
        # Issue BEGIN ourselves: sqlite3 would begin late, and fail instead of waiting when a read turns into a write.
        connection.isolation_level = None
        # Secure deletion: nothing deleted or overwritten remains in the file.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writing = connection.get_execution_options().get(_WRITING, False)
        if writing:
            _begin_writing(connection, patience_s)
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


_CONNECT_S: Final = 5
_PING_S: Final = 2.0
_VERSION_MIN: Final = 14
_SERVER_SETTINGS: Final = sa.text(
    "SELECT name, setting FROM pg_settings"
    " WHERE name IN ('server_version_num', 'server_encoding', 'fsync', 'full_page_writes')"
)
_PROGRAMS: Final = sa.text(
    "SELECT application_name FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name IS NOT NULL LIMIT 10000"
)
_SCHEMA_LOCK: Final = 0x6D61757665  # any number that other programs in the same database do not use
_TABLE_LOCK_S_MAX: Final = 4
_TURN_EVERY_S: Final = 0.5
_TURN_S_MAX: Final = 3600.0
_TURN_LOGGED_EVERY_S: Final = 5.0


class Postgresql:
    """A server. Transactions write at the same time; readers see the moment of their first statement."""

    is_server = True

    def __init__(self, url: sa.URL, patience_s: float, session: Session) -> None:
        self._schema = session.schema
        self._listening: sa.Connection | None = None
        self.engine = _postgresql_engine(url, patience_s, session)
        self._readers = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._writers = self.engine.execution_options(isolation_level="READ COMMITTED", postgresql_readonly=False)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        return self._readers.begin()

    def writing(self) -> sa.Connection:
        return self._writers.connect()

    @contextmanager
    def limit_statements(self, connection: sa.Connection, seconds: float) -> Iterator[None]:
        limit = sa.func.set_config("statement_timeout", str(max(1, int(seconds * 1000))), sa.true())
        connection.execute(sa.select(limit))
        yield

    def commit_quickly(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.set_config("synchronous_commit", "off", sa.true())))

    def check_server(self, connection: sa.Connection) -> None:
        shown: dict[str, str] = {row.name: row.setting for row in connection.execute(_SERVER_SETTINGS)}
        version = int(shown["server_version_num"]) // 10_000
        if version < _VERSION_MIN:
            raise UnsupportedServerError(f"PostgreSQL {version} is too old: use {_VERSION_MIN} or newer")
        if shown["server_encoding"] != "UTF8":
            raise UnsupportedServerError("the database's encoding is not UTF8: create it with ENCODING 'UTF8'")
        if shown["fsync"] != "on" or shown["full_page_writes"] != "on":
            raise UnsupportedServerError("the server may lose what it has stored: set fsync and full_page_writes to on")

    def prepare_to_migrate(self, connection: sa.Connection) -> None:
        # A table that another program uses for long is not waited for: every other statement would wait as well.
        for name, limit in (("statement_timeout", "0"), ("lock_timeout", f"{_TABLE_LOCK_S_MAX}s")):
            connection.execute(sa.select(sa.func.set_config(name, limit, sa.true())))
        _await_turn_to_migrate(connection)
        connection.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))

    def programs(self, connection: sa.Connection) -> list[str]:
        return list(connection.execute(_PROGRAMS).scalars())

    def empty_journal(self, patience_s: float, statement_s: float) -> bool:  # noqa: ARG002 - as above
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            try:
                set_wait(connection, statement_s + HANG_S)
                connection.exec_driver_sql(f"SET statement_timeout = {int(statement_s * 1000)}")
                connection.exec_driver_sql("VACUUM")  # Until then, the server keeps the old versions of rows.
            finally:
                connection.invalidate()  # VACUUM allows no transaction, so the limit is the connection's.
        return True

    def wait_for_notice(self, channel: str, seconds: float) -> None:
        if self._listening is None:  # Return at once: what was announced before is not repeated.
            self._listening = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._listening.exec_driver_sql(f"LISTEN {channel}")
            return
        try:
            driver: Any = self._listening.connection.driver_connection
            for _ in driver.notifies(timeout=seconds, stop_after=1):
                pass
        except BaseException:
            self._listening.invalidate()
            self._listening.close()
            self._listening = None
            raise

    def reason(self, error: BaseException) -> str:
        """Return the primary message alone: the details of a violated constraint name the row's values."""
        diagnostics = getattr(error, "diag", None)
        return getattr(diagnostics, "message_primary", None) or str(error).partition("\n")[0]


def _await_turn_to_migrate(connection: sa.Connection) -> None:
    """Wait while another machine migrates, and say so from time to time."""
    lock = sa.select(sa.func.pg_try_advisory_xact_lock(_SCHEMA_LOCK))
    began_at = logged_at = time.monotonic()
    while not connection.execute(lock).scalar_one():
        now = time.monotonic()
        if now - began_at > _TURN_S_MAX:
            raise UnsupportedServerError("another machine has been migrating the database for an hour: see its log")
        if now - logged_at >= _TURN_LOGGED_EVERY_S:
            log.info("waiting_for_migration", waited_s=round(now - began_at), advice="another machine migrates")
            logged_at = now
        time.sleep(_TURN_EVERY_S)


def set_wait(connection: sa.Connection, seconds: float) -> None:
    """Set how long to wait for a server's answer, until the connection returns to its pool."""
    driver: Any = connection.connection.driver_connection
    driver.wait_s = seconds


def _postgresql_engine(url: sa.URL, patience_s: float, session: Session) -> sa.Engine:
    options = {
        "search_path": session.schema,
        "statement_timeout": int(STATEMENT_S_MAX * 1000),
        "lock_timeout": int(patience_s * 1000),
        "idle_in_transaction_session_timeout": int((STATEMENT_S_MAX + HANG_S) * 1000),
        "default_transaction_isolation": r"read\ committed",
        "synchronous_commit": "on",  # whatever the server's default: a commit that was answered is durable
        "timezone": "UTC",
    }
    arguments = {
        **url.translate_connect_args(username="user", database="dbname"),
        **url.query,
        "connect_timeout": _CONNECT_S,
        "application_name": session.program,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
    }
    connect = _bounded_connect(STATEMENT_S_MAX + HANG_S)
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(arguments),
        hide_parameters=True,
        pool_size=session.connections_max,
        max_overflow=0,
        pool_timeout=patience_s,
        pool_pre_ping=True,
    )
    ping = engine.dialect.do_ping

    def ping_quickly(connection: Any) -> bool:  # noqa: ANN401 - the driver's own type
        """Give a connection up soon: a request may have to find out for several of them that the server hangs."""
        connection.wait_s = _PING_S
        is_alive = ping(connection)
        connection.wait_s = STATEMENT_S_MAX + HANG_S
        return is_alive

    engine.dialect.do_ping = ping_quickly  # type: ignore[method-assign, assignment]
    return engine


def _bounded_connect(limit_s: float) -> Callable[[Mapping[str, Any]], "psycopg.Connection[Any]"]:
    """Return how to connect so that a server which does not answer is given up: psycopg itself would wait forever."""
    try:
        import psycopg  # noqa: PLC0415 - installed only with an extra
    except ImportError as error:
        raise UnsupportedServerError("MAUVE_DATABASE_URL needs a package: install 'mauve[postgres]'") from error

    class BoundedConnection(psycopg.Connection[Any]):
        wait_s = limit_s

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ANN401
            if timeout is not None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, self.wait_s)
            except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 - it has no public name
                self.pgconn.finish()
                raise psycopg.OperationalError(f"the server has not answered for {self.wait_s:g} s") from error

    return lambda arguments: BoundedConnection.connect(psycopg.conninfo.make_conninfo(**arguments))


def upsert(dialect_name: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into the table, to be completed with `on_conflict_…`.

    Building one takes longer than running it: cache it by dialect.
    """
    return sqlite.insert(table) if dialect_name == "sqlite" else postgresql.insert(table)


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
