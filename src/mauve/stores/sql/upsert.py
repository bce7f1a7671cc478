"""INSERT … ON CONFLICT: the one statement that SQLAlchemy spells by engine and both engines read alike."""

from functools import cache

import sqlalchemy as sa
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(dialect_name: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into the table, to be told what happens `on_conflict_…`.

    Building one takes longer than running it: keep it, by the name of the dialect.
    """
    if dialect_name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


@cache
def adding_counts(dialect_name: str, table: Table) -> sa.Insert:
    """Return an insert into a table with `count` and `last_at` that adds to the row that is there, if any."""
    insert = upsert(dialect_name, table)
    is_later = insert.excluded.last_at > table.c.last_at
    changes = {
        "count": table.c.count + insert.excluded.count,
        "last_at": sa.case((is_later, insert.excluded.last_at), else_=table.c.last_at),
    }
    return insert.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)
