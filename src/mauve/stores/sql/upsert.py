"""INSERT … ON CONFLICT: the one statement that SQLAlchemy spells by engine and both engines read alike."""

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(dialect_name: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into the table, to be told what happens `on_conflict_…`.

    Building one takes longer than running it: keep it, by the name of the dialect.
    """
    if dialect_name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)
