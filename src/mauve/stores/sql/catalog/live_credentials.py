"""Which credentials are live: one look-up by primary key or unique index."""

from collections.abc import Collection

import sqlalchemy as sa

from mauve.stores.sql.catalog.schema import apps, keys, projects, tokens, webhook_secrets
from mauve.stores.sql.database import Database


class SqlLiveCredentials:
    def __init__(self, database: Database) -> None:
        self._database = database

    def live_keys(self, key_ids: Collection[str]) -> frozenset[str]:
        is_live = keys.c.key_id.in_(key_ids) & keys.c.revoked.is_(False) & apps.c.archived_at.is_(None)
        query = sa.select(keys.c.key_id).join(apps, apps.c.app_id == keys.c.app_id).where(is_live)
        with self._database.reading() as tx:
            return frozenset(tx.execute(query).scalars())

    def is_live_token(self, lookup_id: str) -> bool:
        is_live = (tokens.c.lookup_id == lookup_id) & tokens.c.revoked.is_(False)
        with self._database.reading() as tx:
            return tx.execute(sa.select(tokens.c.lookup_id).where(is_live)).first() is not None

    def is_live_secret(self, public_id: str, provider: str, version: int) -> bool:
        is_current = (
            (webhook_secrets.c.public_id == public_id)
            & (webhook_secrets.c.provider == provider)
            & (webhook_secrets.c.version == version)
            & apps.c.archived_at.is_(None)
        )
        query = sa.select(webhook_secrets.c.version).join(projects, projects.c.public_id == webhook_secrets.c.public_id)
        query = query.join(apps, apps.c.app_id == projects.c.app_id).where(is_current)
        with self._database.reading() as tx:
            return tx.execute(query).first() is not None

    def close(self) -> None:
        self._database.close()
