"""The order in which transactions lock published rows: two of them that wait for each other would be a deadlock.

By table as listed here, and within a table by id, compared by bytes. A transaction that changes several rows with one
statement locks them with `lock_rows` first: the server updates in any order. `apps` come before all of them, after
their organization.
"""

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from mauve.stores.sql.catalog.schema import keys, organizations, projects, tokens, webhook_secrets

LOCK_ORDER: Final = (organizations, projects, keys, tokens, webhook_secrets)
_ID_OF: Final[Mapping[sa.Table, tuple[sa.Column[str], ...]]] = {
    organizations: (organizations.c.org_id,),
    projects: (projects.c.public_id,),
    keys: (keys.c.key_id,),
    tokens: (tokens.c.lookup_id,),
    webhook_secrets: (webhook_secrets.c.public_id, webhook_secrets.c.provider),
}


def lock_rows(tx: sa.Connection, rows: Mapping[sa.Table, sa.ColumnElement[bool]]) -> None:
    """Lock the rows of each table until the transaction ends. SQLite has one writer, and needs no locks."""
    if tx.dialect.name == "sqlite":
        return
    for table in sorted(rows, key=LOCK_ORDER.index):
        by_bytes = [sa.collate(column, "C") for column in _ID_OF[table]]
        query = sa.select(*_ID_OF[table]).where(rows[table]).order_by(*by_bytes)
        tx.execute(query.with_for_update(key_share=True)).close()
