"""PostgreSQL: connections, their limits, and waiting for notices."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
import structlog

from mauve.stores import UnsupportedServerError
from mauve.stores.sql.dialects import EXPENDABLE, HANG_S, STATEMENT_S_MAX, Session

if TYPE_CHECKING:
    import psycopg

log = structlog.get_logger()


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
_SCHEMA_LOCK: Final = 0x6D61757665  # arbitrary, but unused by other programs in the same database
TABLE_LOCK_S_MAX: Final = 4
LOCK_POLL_S: Final = 0.5
_LOCK_S_MAX: Final = 3600.0
LOCK_LOGGED_EVERY_S: Final = 5.0


class Postgresql:
    """A server. Transactions write concurrently; readers see a snapshot from their first statement."""

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

    def check_server(self, connection: sa.Connection) -> None:
        """Raise unless this release supports the server."""
        shown: dict[str, str] = {row.name: row.setting for row in connection.execute(_SERVER_SETTINGS)}
        version = int(shown["server_version_num"]) // 10_000
        if version < _VERSION_MIN:
            raise UnsupportedServerError(f"PostgreSQL {version} is too old: use {_VERSION_MIN} or newer")
        if shown["server_encoding"] != "UTF8":
            raise UnsupportedServerError("the database's encoding is not UTF8: create it with ENCODING 'UTF8'")
        if shown["fsync"] != "on" or shown["full_page_writes"] != "on":
            raise UnsupportedServerError("the server may lose stored data: set fsync and full_page_writes to on")

    def prepare_to_migrate(self, connection: sa.Connection) -> None:
        """Block migrations by other processes until this transaction ends, and create the schema."""
        # Do not wait long for a table that another program uses: every other statement would queue up.
        for name, limit in (("statement_timeout", "0"), ("lock_timeout", f"{TABLE_LOCK_S_MAX}s")):
            connection.execute(sa.select(sa.func.set_config(name, limit, sa.true())))
        _lock_schema(connection)
        connection.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))

    def programs(self, connection: sa.Connection) -> list[str]:
        return list(connection.execute(_PROGRAMS).scalars())

    def empty_journal(self, patience_s: float, statement_s: float) -> bool:  # noqa: ARG002 - as above
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            try:
                set_wait(connection, statement_s + HANG_S)
                connection.exec_driver_sql(f"SET statement_timeout = {int(statement_s * 1000)}")
                connection.exec_driver_sql("VACUUM")  # Until then, the server keeps old row versions.
            finally:
                connection.invalidate()  # VACUUM cannot run in a transaction, so the limit was set on the connection.
        return True

    def wait_for_notice(self, channel: str, seconds: float) -> None:
        if self._listening is None:  # Return immediately: earlier notifications are not repeated.
            self._listening = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._listening.exec_driver_sql(f"LISTEN {channel}")
            return
        try:
            driver: Any = self._listening.connection.driver_connection
            for _ in driver.notifies(timeout=seconds, stop_after=1):
                pass
        except BaseException:
            self._listening.invalidate()
            self._stop_listening()
            raise

    def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

    def close(self) -> None:
        self._stop_listening()
        self.engine.dispose()

    def reason(self, error: BaseException) -> str:
        """Return only the primary message: the details of a violated constraint contain row values."""
        diagnostics = getattr(error, "diag", None)
        return getattr(diagnostics, "message_primary", None) or str(error).partition("\n")[0]


def _lock_schema(connection: sa.Connection) -> None:
    """Wait while another machine migrates, logging it periodically."""
    lock = sa.select(sa.func.pg_try_advisory_xact_lock(_SCHEMA_LOCK))
    began_at = logged_at = time.monotonic()
    while not connection.execute(lock).scalar_one():
        now = time.monotonic()
        if now - began_at > _LOCK_S_MAX:
            raise UnsupportedServerError("another machine has been migrating the database for an hour: see its log")
        if now - logged_at >= LOCK_LOGGED_EVERY_S:
            log.info("waiting_for_migration", waited_s=round(now - began_at), advice="another machine is migrating")
            logged_at = now
        time.sleep(LOCK_POLL_S)


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
        "synchronous_commit": "on",  # overrides the server's default: an answered commit is durable
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
        """Give up quickly: a request may have to check several connections while the server hangs."""
        connection.wait_s = _PING_S
        is_alive = ping(connection)
        connection.wait_s = STATEMENT_S_MAX + HANG_S
        return is_alive

    engine.dialect.do_ping = ping_quickly  # type: ignore[method-assign, assignment]

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get(EXPENDABLE, False):
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")

    return engine


def _bounded_connect(limit_s: float) -> Callable[[Mapping[str, Any]], "psycopg.Connection[Any]"]:
    """Return a connect function with a time limit: psycopg itself would wait forever."""
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
