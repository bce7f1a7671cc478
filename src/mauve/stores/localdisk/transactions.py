"""A transaction on a connection of the standard library's SQLite driver."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    """Commit when the block ends, undo when it raises or the commit fails. `begin` is BEGIN or BEGIN IMMEDIATE."""
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # A full disk, for one, has ended it already.
            connection.execute("ROLLBACK")
        raise
