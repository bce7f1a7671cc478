"""A snapshot of a SQLite database, unaffected by later writes."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from mauve.stores import StoreUnavailableError

_PAGES_AT_ONCE: Final = 4096
_BUSY_TIMEOUT_S: Final = 30.0


class SqliteSnapshot:
    """Holds a read transaction: writers continue, but the copy does not include their changes."""

    def __init__(self, path: Path) -> None:
        address = f"{path.absolute().as_uri()}?mode=rw"  # a missing file is not created
        try:
            self._connection = sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"{path}: {error}") from error
        try:
            self._connection.execute("BEGIN")
            # The transaction begins with the first read.
            self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            self._connection.close()
            raise StoreUnavailableError(str(error)) from error

    def copy_to(self, target: Path, on_bytes: Callable[[int], None]) -> None:
        """Copy the snapshot into a new file; periodically report the number of bytes added."""
        ((page_bytes,),) = self._connection.execute("PRAGMA page_size").fetchall()
        left = 0

        def tell(_status: int, remaining: int, total: int) -> None:
            nonlocal left
            on_bytes(((left or total) - remaining) * page_bytes)
            left = remaining

        try:
            with closing(sqlite3.connect(target)) as copy:
                self._connection.backup(copy, pages=_PAGES_AT_ONCE, progress=tell)
        except sqlite3.Error as error:
            raise StoreUnavailableError(str(error)) from error

    def close(self) -> None:
        self._connection.close()
