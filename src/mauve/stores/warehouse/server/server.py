"""Connections to a ClickHouse server, over HTTP."""

import logging
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from mauve.core.secret import Secret
from mauve.stores import UnsupportedServerError
from mauve.stores.warehouse import BAD_ROW_CODES, Connection, RowsRefusedError, WarehouseUnavailableError
from mauve.stores.warehouse.schema import SERVER, Layout, clustered

if TYPE_CHECKING:
    from clickhouse_connect.driver.httpclient import HttpClient

Result = TypeVar("Result")
SettingValues = Mapping[str, str | int]

_CONNECT_S: Final = 5
_MARGIN_S: Final = 3  # on top of the time limit of a statement, which a frozen server does not enforce
_ANSWER_S: Final = 15  # During longer statements, a server reports progress.
_LOADING_S_MAX: Final = 120
_MAINTENANCE_S_MAX: Final = 3600  # a mutation rewrites whole tables
_MIGRATION_S_MAX: Final = 30  # until every server of a cluster has a table
_SESSION_S: Final = 120  # A session that is idle for longer ends and loses its staged rows.

NOT_RECOGNIZED: Final[SettingValues] = {"insert_deduplicate": 0, "deduplicate_insert": "disable"}
"""Store rows even if the same rows are already stored. Newer servers have another name for the setting."""

LOST_ROWS: Final = "the staged rows are lost"
LATE_ROWS: Final = "the rows were staged too long ago"

_READONLY: Final = 164
_THROW_IF: Final = 395
_LOST_SESSION_CODES: Final = (372, 373)
_WRONG_USER_CODES: Final = (192, 193, 194, 516)
_REASONS: Final = {
    60: f"{LOST_ROWS}, or a table is missing",
    81: "the database does not exist: check its name in MAUVE_WAREHOUSE_URL, or create it on every server",
    159: "the statement took too long",
    _READONLY: "its user may not write, or not change settings: set 'readonly' of its profile to 0",
    202: "it runs too many queries",
    241: "the statement needs too much memory",
    319: "it is unknown whether a quorum of replicas has the rows",
    372: f"{LOST_ROWS}: the session has ended",
    373: "the session still runs an earlier statement",
    497: "its user lacks a privilege: grant it all privileges on the database, and SYSTEM SYNC REPLICA",
    **dict.fromkeys(_WRONG_USER_CODES, "user or password is wrong: check both in MAUVE_WAREHOUSE_URL"),
}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the warehouse is. `cluster` names the servers that hold copies of it."""

    host: str
    port: int
    user: str
    password: Secret
    database: str
    is_tls: bool
    cluster: str | None

    @property
    def layout(self) -> Layout:
        return SERVER if self.cluster is None else clustered(self.cluster)


def address_from(url: Secret) -> ServerAddress:
    """Return the address in a URL that the settings accept."""
    parts = urlsplit(url.reveal().strip())
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    cluster = options.pop("cluster", None)
    if options:
        raise UnsupportedServerError(f"'{min(options)}' is not an option of MAUVE_WAREHOUSE_URL: use only 'cluster'")
    if cluster is not None and re.fullmatch(r"[\w.-]{1,100}", cluster, re.ASCII) is None:
        raise UnsupportedServerError("the cluster in MAUVE_WAREHOUSE_URL must be a name, as in ?cluster=NAME")
    is_tls = parts.scheme == "clickhouses"
    return ServerAddress(
        host=parts.hostname or "",
        port=parts.port or (8443 if is_tls else 8123),
        user=unquote(parts.username or "default"),
        password=Secret(unquote(parts.password or "")),
        database=unquote(parts.path.strip("/")),
        is_tls=is_tls,
        cluster=cluster,
    )


class ServerConnection(Connection):
    """A connection to one server, with a session that is replaced after an unanswered request.

    Such a request may still be running on the server, but does not interfere with the new session.
    """

    def __init__(self, address: ServerAddress, settings: SettingValues, answer_s: float) -> None:
        connect, self._errors = _driver()
        self._lock = threading.Lock()
        self._place = f"{address.host}:{address.port}"
        self._client = self._guarded(lambda: connect(address, settings, answer_s + _MARGIN_S))
        self._settings_known = self._client.server_settings.keys()
        self._session = _new_session()

    def run_with(self, sql: str, settings: SettingValues) -> None:
        """Run a statement with additional settings, except those that this server does not support."""
        self._query(sql, None, settings=self._known(settings))

    def insert_arrow(self, table: str, stream: bytes) -> None:
        self._insert(table, stream, "ArrowStream")

    def insert_native(self, table: str, blocks: bytes) -> None:
        """Insert rows in blocks of the engine's own format."""
        self._insert(table, blocks, "Native")

    def _insert(self, table: str, rows: bytes, format_: str) -> None:
        with self._lock:
            settings = {**self._session, **self._known(NOT_RECOGNIZED)}
            self._guarded(lambda: self._client.raw_insert(table, insert_block=rows, fmt=format_, settings=settings))

    def _known(self, settings: SettingValues) -> SettingValues:
        return {name: value for name, value in settings.items() if name in self._settings_known}

    def close(self) -> None:
        with self._lock:
            self._client.close_connections()

    def _query(
        self,
        sql: str,
        format_: str | None,
        parameters: Mapping[str, str | int] | None = None,
        settings: SettingValues | None = None,
    ) -> bytes:
        with self._lock:
            used = {**self._session, **(settings or {})}
            return self._guarded(lambda: self._client.raw_query(sql, dict(parameters or {}), used, format_))

    def _guarded(self, request: Callable[[], Result]) -> Result:
        try:
            return request()
        except self._errors as error:
            if getattr(error, "code", None) in (None, *_LOST_SESSION_CODES):
                self._session = _new_session()
            raise _translated(error, self._place) from None  # Its text may hold rows, or the address with the password.


def open_for_reading(address: ServerAddress, read_s_max: float) -> ServerConnection:
    """Connect for reads that set their own limits."""
    return ServerConnection(address, {}, read_s_max)


def open_for_loading(address: ServerAddress) -> ServerConnection:
    """Connect for inserts that are durable when they return."""
    settings: SettingValues = {
        **_WRITING,
        "max_execution_time": _LOADING_S_MAX,
        **_quorum(address),
    }
    return ServerConnection(address, settings, _ANSWER_S)


def open_for_maintenance(address: ServerAddress) -> ServerConnection:
    """Connect for long-running statements. A mutation ends when every replica has run it."""
    settings: SettingValues = {
        **_WRITING,
        "mutations_sync": 2,
        "max_execution_time": 0,
        "distributed_ddl_task_timeout": _MIGRATION_S_MAX,
        "log_queries": 0,
        **_quorum(address),
    }
    return ServerConnection(address, settings, _MAINTENANCE_S_MAX)


def _quorum(address: ServerAddress) -> SettingValues:
    """Make an insert wait for a majority of the replicas, and reads see all such inserts."""
    if address.cluster is None:
        return {}
    return {
        "insert_quorum": "auto",
        "insert_quorum_parallel": 0,
        "insert_quorum_timeout": _ANSWER_S * 1000,
        "select_sequential_consistency": 1,
    }


# Inserts are neither deferred nor compared with earlier ones, unless a statement has a token.
_WRITING: Final[SettingValues] = {"async_insert": 0, "insert_deduplicate": 0}


def reason_for(error: BaseException, place: str) -> str:
    """Describe why a request failed, without the server's message, which may contain row values."""
    code = getattr(error, "code", None)
    if code == _THROW_IF:
        return next((text for text in (LOST_ROWS, LATE_ROWS) if text in str(error)), "a check has failed")
    if code is not None:
        return _REASONS.get(code, f"it reports {getattr(error, 'name', None) or 'an error'}, code {code}")
    cause: BaseException | None = error.__cause__
    if cause is not None:
        silence = _silence(getattr(cause, "reason", None) or cause)
        return f"{place} does not answer ({silence}): check that it runs, and host and port in MAUVE_WAREHOUSE_URL"
    # The driver itself refuses settings that the server reports as read-only.
    return _REASONS[_READONLY] if type(error).__name__ == "ProgrammingError" else "another program answers there"


_SILENCES: Final = {
    "NameResolutionError": "its name is unknown",
    "NewConnectionError": "no connection can be made",
    "ConnectTimeoutError": "connecting takes too long",
    "ReadTimeoutError": "it is silent",
    "SSLError": "TLS failed",
}


def _silence(cause: BaseException) -> str:
    names = (each.__name__ for each in type(cause).__mro__)
    return next((_SILENCES[name] for name in names if name in _SILENCES), "the connection broke off")


def _translated(error: BaseException, place: str) -> RowsRefusedError | WarehouseUnavailableError:
    failure = RowsRefusedError if getattr(error, "code", None) in BAD_ROW_CODES else WarehouseUnavailableError
    return failure(reason_for(error, place))


def _new_session() -> dict[str, str | int]:
    return {"session_id": f"mauve-{secrets.token_hex(16)}", "session_timeout": _SESSION_S}


def _driver() -> tuple[Callable[[ServerAddress, SettingValues, float], "HttpClient"], tuple[type[Exception], ...]]:
    """Return the connect function and the error types of requests."""
    try:
        from clickhouse_connect import common  # noqa: PLC0415 - installed only with an extra
        from clickhouse_connect.driver.exceptions import Error  # noqa: PLC0415
        from clickhouse_connect.driver.httpclient import HttpClient  # noqa: PLC0415
        from clickhouse_connect.driver.httputil import get_pool_manager_options  # noqa: PLC0415
        from urllib3 import PoolManager  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415
    except ImportError as error:
        raise UnsupportedServerError("MAUVE_WAREHOUSE_URL needs a package: install 'mauve[clickhouse]'") from error
    common.set_setting("max_connection_age", 0)  # It would interrupt a session between staging and commit.
    for name in ("clickhouse_connect", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)  # Failures are raised; their warnings would repeat parameters.

    def connect(address: ServerAddress, settings: SettingValues, timeout_s: float) -> HttpClient:
        client = HttpClient(
            "https" if address.is_tls else "http",
            address.host,
            address.port,
            address.user,
            address.password.reveal(),
            address.database,
            compress=False,
            query_retries=0,
            connect_timeout=_CONNECT_S,
            send_receive_timeout=int(timeout_s),
            settings=dict(settings),
            # One connection stays with one server behind a load balancer. No proxy: use the address as given.
            pool_mgr=PoolManager(**get_pool_manager_options(maxsize=1)),
            autogenerate_session_id=False,
        )
        client.http_retries = 0  # Only the loader and the reader retry failed requests.
        return client

    return connect, (Error, HTTPError, OSError)
