"""The embedded engine, chDB: one per process and path.

A process must not fork after importing it.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mauve.stores.warehouse import BAD_ROW_CODES, Connection, RowsRefusedError, WarehouseUnavailableError

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
# A bound text is parsed like a field of a tab-separated line.
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})


class ChdbConnection(Connection):
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
            self._query(statement, None)

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

    def _query(self, sql: str, format_: str | None, parameters: Mapping[str, str | int] | None = None) -> bytes:
        bound = {name: str(value).translate(_ESCAPES) for name, value in (parameters or {}).items()}
        with self._lock:
            try:
                found: bytes = self._connection.query(sql, format_ or "Null", params=bound).bytes()
            except self._errors as error:
                raise _translated(error) from error
        return found


def _translated(error: BaseException) -> RowsRefusedError | WarehouseUnavailableError:
    reason = str(error).partition("\n")[0][:500]
    found = _ERROR_CODE.search(reason)
    is_about_rows = found is not None and int(found.group(1)) in BAD_ROW_CODES
    return RowsRefusedError(reason) if is_about_rows else WarehouseUnavailableError(reason)
