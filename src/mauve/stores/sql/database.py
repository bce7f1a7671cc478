"""Connections and transactions of one SQL database."""

import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from mauve.stores import StoreUnavailableError, UnconfirmedError
from mauve.stores.cancellation import current_cancellation, seconds_left
from mauve.stores.sql.dialects import CONNECTIONS_MAX, EXPENDABLE, HANG_S, STATEMENT_S_MAX, Session, Sqlite, now_ms
from mauve.stores.sql.postgresql import Postgresql, set_wait

Dialect = Sqlite | Postgresql

# One pool per server database and process, shared by all users of the database. Statement limits are set per
# transaction, so they need no separate pool; the first user decides how long to wait for a connection or a lock. A
# SQLite file has no connection limit, so each user has its own pool.
_opening: Final = threading.Lock()
_servers: Final[dict[tuple[str, Session], Dialect]] = {}
_users: Final[Counter[Dialect]] = Counter()

Record = TypeVar("Record")

_CONNECTION_LOST: Final = ("08", "57P")  # PostgreSQL: the connection failed, the server is stopping
_CONNECTIONS: Final = sa.text(  # not pg_stat_activity, which shows an ordinary role little about other sessions
    "SELECT sum(numbackends),"
    " current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    " FROM pg_stat_database"
)


def sqlite_url(path: Path) -> sa.URL:
    return sa.URL.create("sqlite+pysqlite", database=str(path))


TimeOf = Callable[[sa.Connection, int], int]
"""Returns the time of a transaction in epoch milliseconds, given the machine's time."""


def server_time(connection: sa.Connection, _machine_ms: int) -> int:
    """Return the server's time, so that machines that share a database agree on windows and expiry."""
    return connection.execute(sa.select(now_ms(connection.dialect.name))).scalar_one()


def machine_time(_connection: sa.Connection, machine_ms: int) -> int:
    return machine_ms


def _acquire(url: sa.URL, patience_s: float, session: Session) -> Dialect:
    if url.get_backend_name() == "sqlite":
        return Sqlite(url, patience_s)
    key = (url.render_as_string(hide_password=False), session)
    with _opening:
        dialect = _servers.get(key) or Postgresql(url, patience_s, session)
        _servers[key] = dialect
        _users[dialect] += 1
    return dialect


def _release(dialect: Dialect) -> None:
    """Close the pool when its last user releases it."""
    with _opening:
        _users[dialect] -= 1
        if _users[dialect] > 0:
            return
        del _users[dialect]
        for key in [key for key, each in _servers.items() if each is dialect]:
            del _servers[key]
    dialect.close()


class Database:
    """One SQL database: a SQLite file, or a schema on a PostgreSQL server, whose connections a process shares.

    On a server, a statement may take `statement_s`, and a write transaction that is idle for `idle_s` ends and releases
    its locks. With a lower `connections_max`, the database has its own connections.
    Every failure of the engine raises `StoreUnavailableError`.
    """

    def __init__(
        self,
        url: sa.URL,
        busy_timeout_s: float,
        *,
        schema: str = "public",
        statement_s: float = STATEMENT_S_MAX,
        idle_s: float | None = None,
        connections_max: int = CONNECTIONS_MAX,
        program: str = "mauve",
        time_of: TimeOf | None = None,
    ) -> None:
        self._dialect = _acquire(url, busy_timeout_s, Session(schema, program, connections_max))
        self._statement_s = statement_s
        self._idle_s = idle_s
        self._is_closed = False
        self.time_of = time_of or (server_time if self.is_server else machine_time)

    @property
    def is_server(self) -> bool:
        """Return whether other machines may also use the database."""
        return self._dialect.is_server

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a transaction in which every statement sees the same snapshot."""
        left_s = seconds_left()
        with self._as_unavailable(), self._dialect.reading() as connection:
            self._set_limits(connection)
            limit = nullcontext() if left_s == math.inf else self._dialect.limit_statements(connection, left_s)
            with limit:
                yield connection

    @contextmanager
    def writing(self, *, is_expendable: bool = False) -> Iterator[sa.Connection]:
        """Open a write transaction; commit when the block ends, roll back if it raises.

        Also roll back if the caller has given up by then. An expendable commit need not survive a power cut.
        Raise `UnconfirmedError` if the commit is not answered.
        """
        with (
            self._as_unavailable(),
            self._dialect.writing().execution_options(**{EXPENDABLE: is_expendable}) as connection,
            connection.begin() as transaction,
        ):
            self._set_limits(connection, self._idle_s)
            yield connection
            with current_cancellation().committing(), self._as_unconfirmed():
                transaction.commit()

    @contextmanager
    def migrating(self) -> Iterator[sa.Connection]:
        """Open a write transaction that excludes migrations by other processes."""
        with self.writing() as connection:
            self._dialect.prepare_to_migrate(connection)
            yield connection

    def connections(self) -> tuple[int, int]:
        """Return the number of connections to the server, and its limit."""
        with self.reading() as connection:
            used, allowed = connection.execute(_CONNECTIONS).one()
            return int(used), int(allowed)

    def programs(self, connection: sa.Connection) -> list[str]:
        """Return the program name of each connection."""
        return self._dialect.programs(connection)

    def check_server(self) -> None:
        """Raise unless the server is reachable and supported by this release."""
        with self.reading() as connection:
            self._dialect.check_server(connection)

    def wait_for_notice(self, channel: str, seconds: float) -> None:
        """Wait for a notification on the channel, at most for this time.

        Use this from one thread. If the server is down, wait the whole time.
        """
        ends_at = time.monotonic() + seconds
        try:
            self._dialect.wait_for_notice(channel, seconds)
        except Exception:  # noqa: BLE001 - from any driver; the next read reports why
            time.sleep(max(0.0, ends_at - time.monotonic()))

    def empty_journal(self, patience_s: float) -> bool:
        """Empty SQLite's write-ahead log; return False if readers prevented it throughout."""
        with self._as_unavailable():
            return self._dialect.empty_journal(patience_s, self._statement_s)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            _release(self._dialect)

    def _set_limits(self, connection: sa.Connection, idle_s: float | None = None) -> None:
        """Set the limits of this transaction that differ from those of the shared connections."""
        if not self.is_server or (self._statement_s == STATEMENT_S_MAX and idle_s is None):
            return
        wait_s = self._statement_s + HANG_S
        set_wait(connection, wait_s)
        limits = {"statement_timeout": self._statement_s, "idle_in_transaction_session_timeout": idle_s or wait_s}
        values = [sa.func.set_config(name, str(int(limit * 1000)), sa.true()) for name, limit in limits.items()]
        connection.execute(sa.select(*values))

    @contextmanager
    def _as_unconfirmed(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            state = getattr(error.orig, "sqlstate", None) or _CONNECTION_LOST[0]  # None: no answer
            if not self.is_server or not state.startswith(_CONNECTION_LOST):
                raise
            raise UnconfirmedError(self._dialect.reason(error.orig or error)) from error

    @contextmanager
    def _as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:  # sqlite3.Error: a PRAGMA on a damaged file
            # The driver's message: SQLAlchemy's would include the statement.
            reason = self._dialect.reason(getattr(error, "orig", None) or error)
            raise StoreUnavailableError(reason) from error


class SqlStore:
    """A store, or a part of one, in a SQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    def _records(self, query: sa.Executable, kind: type[Record]) -> list[Record]:
        with self._database.reading() as tx:
            return records_from(tx, query, kind)

    def _first(self, query: sa.Executable, kind: type[Record]) -> Record | None:
        return next(iter(self._records(query, kind)), None)

    def _rows(self, query: sa.Executable) -> Sequence[Any]:
        with self._database.reading() as tx:
            return tx.execute(query).all()

    def _scalar(self, query: sa.Executable) -> Any:  # noqa: ANN401 - of any column
        with self._database.reading() as tx:
            return tx.execute(query).scalar_one()

    def _execute(self, statement: sa.Update | sa.Delete) -> int:
        """Execute a statement; return the number of rows it changed."""
        with self._database.writing() as tx:
            return tx.execute(statement).rowcount

    def _execute_each(self, statement: sa.Update | sa.Delete, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            with self._database.writing() as tx:
                tx.execute(statement, rows)


def record_from(row: sa.Row[Any], kind: type[Record], **others: object) -> Record:
    """Convert a row to a class with the same field names; `others` adds or replaces values."""
    converters = _converters_of(kind)  # type: ignore[arg-type]  # classes are hashable
    values = {name: converter(getattr(row, name)) for name, converter in converters.items() if name not in others}
    return kind(**values, **others)


@cache
def _converters_of(kind: type) -> dict[str, Callable[[Any], Any]]:
    """Return how to convert the column of each field: a text to an enumeration, others not at all."""
    hints = get_type_hints(kind)
    return {name: hint if isinstance(hint, EnumType) else _unchanged for name, hint in hints.items()}


def _unchanged(value: Any) -> Any:  # noqa: ANN401 - of any column
    return value


def records_from(tx: sa.Connection, query: sa.Executable, kind: type[Record]) -> list[Record]:
    return [record_from(row, kind) for row in tx.execute(query)]
