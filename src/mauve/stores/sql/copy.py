"""Copy a database: a snapshot of a SQLite file, or all rows into another database.

Rows are copied in small transactions, so that a later run can resume.
"""

import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mauve.stores import StoreUnavailableError
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert_replacing

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

        def report(_status: int, remaining: int, total: int) -> None:
            nonlocal left
            on_bytes(((left or total) - remaining) * page_bytes)
            left = remaining

        try:
            with closing(sqlite3.connect(target)) as copy:
                self._connection.backup(copy, pages=_PAGES_AT_ONCE, progress=report)
        except sqlite3.Error as error:
            raise StoreUnavailableError(str(error)) from error

    def close(self) -> None:
        self._connection.close()


_ROWS_AT_ONCE: Final = 2_000

# The progress per table: the key of the last row. Stored in the target, so that it advances with the rows.
_progress: Final = sa.Table(
    "copied",
    sa.MetaData(),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("after", sa.Text, nullable=False),
)


def count_rows(database: Database, tables: Sequence[sa.Table]) -> dict[str, int]:
    with database.reading() as tx:
        return {table.name: tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables}


def copy_tables(
    source: Database, target: Database, tables: Sequence[sa.Table], on_rows: Callable[[str, int], None]
) -> None:
    """Copy the tables, parents first. The source must not change; the target must hold nothing else."""
    with target.writing() as tx:
        _progress.create(tx, checkfirst=True)
    for table in tables:
        while copied := _copy_some(source, target, table):
            on_rows(table.name, copied)
        _continue_numbering(target, table)


def forget_progress(target: Database) -> None:
    with target.writing() as tx:
        _progress.drop(tx, checkfirst=True)


def has_progress(target: Database) -> bool:
    """Return whether a copy into this database was interrupted."""
    with target.reading() as tx:
        return sa.inspect(tx).has_table(_progress.name)


def _copy_some(source: Database, target: Database, table: sa.Table) -> int:
    """Copy the next rows in key order, and return their number."""
    key = list(table.primary_key.columns)
    with target.writing() as tx:
        after = tx.execute(sa.select(_progress.c.after).where(_progress.c.name == table.name)).scalar_one_or_none()
        query = sa.select(table).order_by(*key).limit(_ROWS_AT_ONCE)
        if after is not None:
            values = [sa.literal(value, column.type) for value, column in zip(_decoded(after), key, strict=True)]
            query = query.where(sa.tuple_(*key) > sa.tuple_(*values))
        with source.reading() as reading:
            rows = [_by_key(table, row) for row in reading.execute(query)]
        if rows:
            # A row may already exist: migrations insert some, and an earlier run may have died after its commit.
            tx.execute(upsert_replacing(tx.dialect.name, table), rows)
            last = _encoded([rows[-1][column.key] for column in key])
            tx.execute(upsert_replacing(tx.dialect.name, _progress), {"name": table.name, "after": last})
    return len(rows)


def _by_key(table: sa.Table, row: sa.Row[Any]) -> dict[str, Any]:
    return {column.key: value for column, value in zip(table.columns, row, strict=True)}


def _continue_numbering(target: Database, table: sa.Table) -> None:
    """Make the server number new rows after the copied ones."""
    column = table.autoincrement_column
    if column is None:
        return
    with target.writing() as tx:
        if tx.dialect.name == "postgresql":
            last = sa.select(sa.func.coalesce(sa.func.max(column), 1)).scalar_subquery()
            tx.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence(table.name, column.name), last)))


def _encoded(key: Sequence[object]) -> str:
    return json.dumps([{"b": b64encode(value).decode()} if isinstance(value, bytes) else value for value in key])


def _decoded(text: str) -> list[Any]:
    return [b64decode(value["b"]) if isinstance(value, dict) else value for value in json.loads(text)]
