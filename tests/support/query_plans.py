"""How SQLite answers the queries of a reader."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from mauve.stores.sql.database import Database


def sqlite_plans(database: Database, read: Callable[[], object]) -> list[str]:
    """Return the query plan of each SELECT that the read executes."""
    with _selects_of(database._dialect.engine) as selects:  # noqa: SLF001 - the driver's own statements are seen only there
        read()
    with database.reading() as tx:
        return [
            "\n".join(row[3] for row in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters))
            for statement, parameters in selects
        ]


@contextmanager
def _selects_of(engine: sa.Engine) -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    found: list[tuple[str, tuple[object, ...]]] = []

    def note(
        _connection: object, _cursor: object, statement: str, parameters: tuple[object, ...], *_rest: object
    ) -> None:
        if statement.startswith("SELECT"):
            found.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    yield found
    sa.event.remove(engine, "before_cursor_execute", note)
