"""A revision number per project that increases with every change of its money."""

from collections.abc import Collection
from functools import cache

import sqlalchemy as sa

from mauve.stores.ledger.schema import money_revisions
from mauve.stores.sql.dialects import upsert


def raise_revisions(tx: sa.Connection, projects: Collection[str]) -> None:
    """Increment the revisions. Call this last in a transaction, so that transactions cannot deadlock on these rows."""
    if projects:
        tx.execute(_raise(tx.dialect.name), [{"project": project, "revision": 1} for project in sorted(projects)])


@cache
def _raise(dialect_name: str) -> sa.Insert:
    insert = upsert(dialect_name, money_revisions)
    raised = {"revision": money_revisions.c.revision + insert.excluded.revision}
    return insert.on_conflict_do_update(index_elements=[money_revisions.c.project], set_=raised)
