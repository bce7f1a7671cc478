"""Connections to ClickHouse, and the embedded engine: one per process and path.

A process must not fork after importing it.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError

_MEMORY_BYTES_MAX: Final = 700 * 1024 * 1024
_SERVER_SETTINGS: Final = {
    "max_server_memory_usage": _MEMORY_BYTES_MAX,
    "mark_cache_size": 64 * 1024 * 1024,
    "index_mark_cache_size": 16 * 1024 * 1024,
    "primary_index_cache_size": 64 * 1024 * 1024,
    "background_pool_size": 2,
}
_DATABASE: Final = ("CREATE DATABASE IF NOT EXISTS mauve", "USE mauve")
_ERROR_CODE: Final = re.compile(r"Code: (\d+)")
# Errors caused by the rows; any other indicates a problem with the engine or its disk.
BAD_ROW_CODES: Final = frozenset(
    {
        6,  # cannot parse text
        27,  # cannot parse input
        33,  # cannot read all data
        41,  # cannot parse date and time
        53,  # type mismatch
        69,  # argument out of bound
        70,  # cannot convert type
        72,  # cannot parse number
        117,  # incorrect data
        131,  # too large string size
        321,  # value is out of range of data type
        349,  # cannot insert NULL in ordinary column
    }
)
# A bound text is parsed like a field of a tab-separated line.
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
_lines: Final = msgspec.json.Decoder()


class Connection(Protocol):
    """A session on an engine, used by one thread at a time. Its temporary tables are not visible to other sessions."""

    def run(self, sql: str, parameters: Mapping[str, str | int] | None = None) -> None: ...

    def rows(self, sql: str) -> list[tuple[int, ...]]:
        """Return rows of integers."""
        ...

    def binary(self, sql: str) -> bytes:
        """Return rows in the engine's binary format, concatenated."""
        ...

    def read(self, sql: str, parameters: Mapping[str, str | int]) -> list[list[Any]]:
        """Return rows of texts and integers. Parameters are bound to `{name:Type}`, never inserted into the SQL."""
        ...

    def arrow(self, sql: str, parameters: Mapping[str, str | int]) -> bytes:
        """Return rows as an Arrow stream."""
        ...

    def insert_arrow(self, table: str, stream: bytes) -> None: ...

    def close(self) -> None: ...


class ChdbConnection:
    def __init__(self, path: Path) -> None:
        import chdb  # noqa: PLC0415 - takes half a second and much memory

        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = "&".join(f"{name}={value}" for name, value in _SERVER_SETTINGS.items())
        self._lock = threading.Lock()
        self._errors = (chdb.ChdbError, RuntimeError)
        try:
            self._connection: Any = chdb.connect(f"{path}?{settings}")
        except self._errors as error:
            raise _translated(error) from error
        for statement in _DATABASE:
            self._query(statement, "Null")

    def run(self, sql: str, parameters: Mapping[str, str | int] | None = None) -> None:
        self._query(sql, "Null", _escaped(parameters or {}))

    def rows(self, sql: str) -> list[tuple[int, ...]]:
        return integers_from(self._query(sql, "TSV"))

    def binary(self, sql: str) -> bytes:
        return self._query_bytes(sql, "RowBinary")

    def read(self, sql: str, parameters: Mapping[str, str | int]) -> list[list[Any]]:
        return rows_from(self._query(sql, "JSONCompactEachRow", _escaped(parameters)))

    def arrow(self, sql: str, parameters: Mapping[str, str | int]) -> bytes:
        return self._query_bytes(sql, "ArrowStream", _escaped(parameters))

    def insert_arrow(self, table: str, stream: bytes) -> None:
        with self._lock:
            try:
                with self._connection.send_insert(f"INSERT INTO {table}", "ArrowStream") as inserter:
                    inserter.append(stream)
                    inserter.finish()
            except self._errors as error:
                raise _translated(error) from error

    def native_blocks(self, sql: str) -> Iterator[bytes]:
        """Yield the rows in blocks of the engine's own format."""
        with self._lock:
            try:
                with self._connection.send_query(sql, "Native") as blocks:
                    for block in blocks:
                        yield block.bytes()
            except self._errors as error:
                raise _translated(error) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _query(self, sql: str, format_: str, parameters: Mapping[str, str] | None = None) -> str:
        return self._query_bytes(sql, format_, parameters).decode()

    def _query_bytes(self, sql: str, format_: str, parameters: Mapping[str, str] | None = None) -> bytes:
        with self._lock:
            try:
                found: bytes = self._connection.query(sql, format_, params=parameters).bytes()
            except self._errors as error:
                raise _translated(error) from error
        return found


def integers_from(lines: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split("\t"))) for line in lines.splitlines()]


def rows_from(lines: str | bytes) -> list[list[Any]]:
    return _lines.decode_lines(lines)


def _escaped(parameters: Mapping[str, str | int]) -> dict[str, str]:
    return {name: str(value).translate(_ESCAPES) for name, value in parameters.items()}


def _translated(error: BaseException) -> RowsRefusedError | WarehouseUnavailableError:
    reason = str(error).partition("\n")[0][:500]
    found = _ERROR_CODE.search(reason)
    is_about_rows = found is not None and int(found.group(1)) in BAD_ROW_CODES
    return RowsRefusedError(reason) if is_about_rows else WarehouseUnavailableError(reason)
