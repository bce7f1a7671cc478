"""Distinguish a database from a copy made by pg_restore.

A row of the catalog holds the ids that PostgreSQL assigned to its database, its table and the transaction that wrote
it. A restored row has the same content, but other ids. File-level copies keep them: a standby, a base backup,
pg_upgrade.
"""

from typing import Final

import sqlalchemy as sa

from mauve.stores.sql.database import Database

_MARK: Final = "database_mark"
_DATABASE: Final = "(SELECT oid FROM pg_database WHERE datname = current_database())"
_IS_COPY: Final = sa.text(
    f"SELECT value <> concat_ws('.', {_DATABASE}, tableoid, xmin) FROM installation WHERE name = :mark"  # noqa: S608
)
_WRITE: Final = sa.text(
    f"""
    INSERT INTO installation (name, value) VALUES (
        :mark, concat_ws('.', {_DATABASE}, 'installation'::regclass::oid, pg_current_xact_id()::xid)
    )
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
    """  # noqa: S608 - our own words
)


def is_restored_copy(catalog: Database) -> bool:
    """Return whether this database was restored from a dump and is not reconciled yet."""
    if not catalog.is_server:
        return False
    with catalog.reading() as tx:
        return bool(tx.execute(_IS_COPY, {"mark": _MARK}).scalar_one_or_none())


def mark_original(catalog: Database, *, is_renewed: bool) -> None:
    """Mark this database as the original: the first time, or once a restored one is reconciled."""
    if not catalog.is_server:
        return
    with catalog.writing() as tx:
        has_mark = tx.execute(_IS_COPY, {"mark": _MARK}).scalar_one_or_none() is not None
        if is_renewed or not has_mark:
            tx.execute(_WRITE, {"mark": _MARK})
